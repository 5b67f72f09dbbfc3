"""Statements by rules in sets, against `readable_by` over random rules and memories: what an empty answer counts, what
an overview chooses from, and what was written at a time."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from sqlalchemy import select, text

from openmemory.access import rule_cache
from openmemory.access.rule_cache import RuleCache
from openmemory.access.rules import Rules
from openmemory.access.schemas import GrantCreate
from openmemory.content_policy.injection import LABEL
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL
from openmemory.index.models import ItemKind, OutboxEntry
from openmemory.memories.intake import STATE
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.answers.empty import Tally, tally
from openmemory.search.answers.overview import _scope_of
from openmemory.search.candidates.time_only import TimedMemory, memories_written_at
from openmemory.search.context import SearchContext, SearchResources, search_context
from openmemory.search.query.periods import Period
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.as_of import as_of_state, findable
from openmemory.search.sql.filter import predicate
from openmemory.services import Services

APPS = ("claude", "cursor", "windsurf")
NAMESPACES = ("default", "work", "private")
CATEGORIES = ("health", "finance", "travel")
SIZE = 48
ROUNDS = 30
START = datetime(2026, 1, 1, tzinfo=UTC)

HIDDEN = (
    "state = 'paused'",
    "expires_at = now() - interval '1 day'",
    "valid_until = now() - interval '1 day'",
    f"kind = '{STATE}'",
)
"""Changes of a row that hide a memory from every app, or from searches."""


async def remember(services: Services, owner: Caller, chance: random.Random) -> tuple[list[UUID], datetime]:
    """Stores memories, and returns their ids and a time. Apps rewrote some of the memories after that time.

    The text and the metadata of a memory may be of different apps. Some categories are automatic, some memories are
    hidden, and half of the memories wait for the index.
    """
    callers = [await services.directory.caller(owner.user, app) for app in APPS]
    news = [
        MemoryCreate(
            text=f"memory {number}",
            app=chance.choice(APPS),
            namespace=chance.choice(NAMESPACES),
            categories=tuple(chance.sample(CATEGORIES, chance.choice([0, 1, 2]))),
            created_at=START + timedelta(days=number),
        )
        for number in range(SIZE)
    ]
    ids = [one.id for one in await services.memories.add_many(owner, news)]
    then = datetime.now(UTC)
    for id_ in ids[::3]:
        await services.memories.update(chance.choice(callers), id_, MemoryUpdate(f"rewritten {id_}"))
    async with services.database.transaction() as tx:
        for number, id_ in enumerate(ids):
            text_of, metadata_of = (chance.choice([None, None, *callers]) for _ in range(2))
            values = {
                "id": id_,
                "text": text_of and text_of.app_id,
                "metadata": metadata_of and metadata_of.app_id,
                "user": chance.random() < 0.2,
                "guess": chance.random() < 0.4,
            }
            more = f", {HIDDEN[number % len(HIDDEN)]}" if chance.random() < 0.2 else ""
            more += f", labels = '{{{LABEL}}}'" if chance.random() < 0.2 else ""
            written = f"text_app_id = :text, metadata_app_id = :metadata, text_by_user = :user{more}"
            await tx.execute(text(f"UPDATE memories SET {written} WHERE id = :id"), values)
            await tx.execute(text("UPDATE memory_categories SET automatic = :guess WHERE memory_id = :id"), values)
        await tx.execute(text("DELETE FROM index_outbox WHERE id = ANY(:ids)"), {"ids": ids[::2]})
    return ids, then


async def make_rules(services: Services, owner: Caller, ids: list[UUID], chance: random.Random, size: int) -> None:
    """Replaces the rules of the user by random ones."""
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM access_controls WHERE user_id = :user"), {"user": owner.user_id})
        await rule_cache.changed(tx, [owner.user_id])
    choices: dict[str, Any] = {"memory": list(map(str, ids)), "app": APPS, "namespace": NAMESPACES}
    choices |= {"category": CATEGORIES, "all": (None,)}
    for _ in range(size):
        kind = chance.choices(list(choices), weights=(6, 3, 3, 3, 1))[0]
        effect, app = chance.choice(["deny", "allow"]), chance.choice([*APPS[:2], None])
        new = {"app": app, "effect": effect, "object_type": kind, "object": chance.choice(choices[kind])}
        await services.grants.create(owner, GrantCreate.model_validate(new))


RULEBOOK = RuleCache()
"""The rules that all tests remember."""


class Readable(NamedTuple):
    """A memory that may be found, with its text as of the time of the query."""

    id: UUID
    created_at: datetime
    content: str
    flagged: bool
    waits: bool


async def readable(context: SearchContext) -> list[Readable]:
    """The memories that may be found by `readable_by`, newest first."""
    as_of = context.query.as_of
    was = as_of_state(context.caller) if as_of else None
    source, may_find = findable(context.caller, was)
    entry = OutboxEntry.__table__
    waits = Memory.id.in_(select(entry.c.id).where(entry.c.kind == ItemKind.MEMORY))
    content: Any = was.content if was else Memory.content
    rows = select(Memory.id, Memory.created_at, content, Memory.labels.contains([LABEL]), waits)
    rows = rows.select_from(source).where(may_find, predicate(context.filter.shape)).order_by(Memory.created_at.desc())
    async with context.database.statement() as tx:
        found = await tx.execute(rows, {**context.filter.parameters, "as_of": as_of})
        return [Readable(*row) for row in found]


def counted(rows: list[Readable]) -> Tally:
    """The tally of these memories, as an empty answer gives it."""
    times = [row.created_at for row in rows]
    return Tally(False, len(rows), sum(row.waits for row in rows), min(times, default=None), max(times, default=None))


def written(rows: list[Readable], times: list[Period], limit: int) -> list[TimedMemory]:
    """The memories that were written within one of the times. Flagged memories come last."""
    there = [row for row in rows if any(time.start <= row.created_at < time.end for time in times)]
    return [TimedMemory(row.id, row.created_at) for row in sorted(there, key=lambda row: row.flagged)][:limit]


async def assert_same(context: SearchContext) -> int:
    """Asserts that statements by sets find the same as `readable_by`. Returns the number of memories."""
    rows = await readable(context)
    assert await tally(context, with_times=True) == counted(rows)
    scope = await _scope_of(context, SIZE)
    assert scope.total == len(rows)
    chosen = [(one.id, one.created_at, one.text, one.flagged) for one in scope.candidates]
    assert chosen == [row[:4] for row in rows]
    assert await memories_written_at(context) == written(rows, list(context.times), context.limit)
    return len(rows)


def context_of(
    services: Services, caller: Caller, query: SearchQuery, rulebook: RuleCache = RULEBOOK, times: Sequence[Period] = ()
) -> SearchContext:
    """The context of a search."""
    resources = SearchResources(services.database, services.spaces, services.settings, rulebook)
    return search_context(resources, caller, query, times)


@pytest.mark.parametrize("default", ["user", pytest.param("own_app", marks=pytest.mark.slow)])
async def test_statements_by_sets_find_what_readable_by_finds(
    services: Services, owner: Caller, in_bulk: None, default: Any
):
    chance = random.Random(5)
    ids, then = await remember(services, owner, chance)
    queries = [SearchQuery("x"), SearchQuery("x", namespaces=("work",)), SearchQuery("x", as_of=then)]
    principals = [LOCAL, replace(LOCAL, namespaces=("default", "work"))]
    totals = set()
    for size in range(ROUNDS):
        await make_rules(services, owner, ids, chance, size % 12)
        for app in (*APPS[:2], "never seen"):
            known = await services.directory.caller(owner.user, app)
            caller = replace(known, default=default, principal=chance.choice(principals))
            query = replace(chance.choice(queries), limit=chance.choice((3, 10, SIZE)))
            totals.add(await assert_same(context_of(services, caller, query, times=days(chance))))
    assert len(totals) > 10
    for query in queries:
        await assert_same(context_of(services, owner, query, times=days(chance)))


def days(chance: random.Random) -> list[Period]:
    """One or two times, which may overlap."""
    starts = [START + timedelta(days=chance.randrange(SIZE)) for _ in range(chance.choice((1, 2)))]
    return [Period(start, start + timedelta(days=chance.randrange(1, SIZE))) for start in starts]


class Overtaken(RuleCache):
    """A cache that returns rules which have changed meanwhile."""

    def __init__(self, change: Callable[[], Awaitable[object]]) -> None:
        super().__init__()
        self._changes = [change]

    async def of(self, tx: Tx, caller: Caller) -> Rules:
        found = await super().of(tx, caller)
        while self._changes:
            await self._changes.pop()()
        return found


async def numbers(services: Services, caller: Caller, rulebook: Callable[[], RuleCache]) -> list[int]:
    """The number of memories by each of the three statements."""
    today = [Period(datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + timedelta(days=1))]
    one, two, three = (context_of(services, caller, SearchQuery("x"), rulebook(), today) for _ in range(3))
    return [(await tally(one)).total, (await _scope_of(two, SIZE)).total, len(await memories_written_at(three))]


async def test_no_statement_follows_rules_that_changed_meanwhile(
    services: Services, owner: Caller, app_caller: Caller, in_bulk: None
):
    await services.memories.add_many(owner, [MemoryCreate(f"memory {n}", namespace=f"n{n % 2}") for n in range(6)])
    rule = GrantCreate(effect="deny", app=app_caller.app, object_type="namespace", object="n1")
    rulebook = RuleCache()
    assert await numbers(services, app_caller, lambda: rulebook) == [6, 6, 6]

    async def forbid() -> None:
        await make_rules(services, owner, [], random.Random(1), 0)
        await services.grants.create(owner, rule)

    assert await numbers(services, app_caller, lambda: Overtaken(forbid)) == [3, 3, 3]
    assert await numbers(services, app_caller, lambda: rulebook) == [3, 3, 3]


async def test_an_app_that_is_paused_meanwhile_finds_nothing(
    services: Services, owner: Caller, app_caller: Caller, in_bulk: None
):
    await services.memories.add(owner, MemoryCreate("memory"))
    rulebook = Overtaken(lambda: services.apps.set_active(owner, app_caller.app_id, False))
    counted = await tally(context_of(services, app_caller, SearchQuery("x"), rulebook))
    assert (counted.paused, counted.total, counted.waiting) == (True, 0, 0)
    assert await numbers(services, app_caller, RuleCache) == [0, 0, 0]
