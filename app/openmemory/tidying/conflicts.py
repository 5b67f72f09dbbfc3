"""Lists the key-value facts that disagree, and lets the user decide which one holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Integer, bindparam, func
from sqlalchemy.dialects.postgresql import aggregate_order_by

from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.config.settings import LimitSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.dedup.key_values import Pairs, merged, parsed
from openmemory.errors import ConflictError, Invalid
from openmemory.identity.caller import Caller, Default
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, validation
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle import superseding, undoing
from openmemory.memories.listing import pages
from openmemory.memories.listing.criteria import disputes_of, facts_of
from openmemory.memories.listing.pages import ListAccess
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryQuery, MemoryRecord, MemoryUpdate
from openmemory.tidying.schemas import FactChoice
from openmemory.tidying.seen_versions import locked

MAX_PAGE_SIZE = 100

MAX_MEMORIES = 20
"""The maximum number of memories that are shown for one key: the newest."""


@dataclass(frozen=True, slots=True)
class Fact:
    """The value that a memory gives a key. `alone`: the memory says nothing else."""

    value: str
    alone: bool
    memory: MemoryRecord


@dataclass(frozen=True, slots=True)
class FactConflict:
    """A key to which the memories of one namespace give different values, newest first.

    `more` is the number of memories with that key that are not among the facts.
    """

    key: str
    namespace: str
    facts: Sequence[Fact]
    more: int


@dataclass(frozen=True, slots=True)
class ConflictPage:
    """A page of conflicts, those with the newest facts first, and the number of all."""

    items: Sequence[FactConflict]
    total: int


@dataclass(frozen=True, slots=True)
class FactChosen:
    """The value that holds, how many memories were superseded and how many corrected, and the id to undo that."""

    value: str
    superseded: int
    corrected: int
    action: UUID


class Conflicts:
    """Lists conflicts and decides them. Apps may list what they may read; only the user decides."""

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        *,
        intake: Intake,
        limits: LimitSettings,
        written: Counter[str],
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._written = written

    async def list(self, caller: Caller, *, page: int = 1, size: int = 20) -> ConflictPage:
        """A page of the conflicts among the memories that the caller may read. Logs the read.

        Raises:
            Invalid: the page or its size is invalid.
        """
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        query = statement(caller.owner, caller.default, everywhere=caller.everywhere)
        values = caller.parameters | {"skipped": (page - 1) * size, "size": size}
        async with self._database.planned() as tx:
            rows = await query.rows(tx, values)
        ids = list(dict.fromkeys(id_ for row in rows for id_ in row.ids[:MAX_MEMORIES]))
        records = await pages.fetch_records(self._database, ListAccess(caller), MemoryQuery(), ids)
        by_id = {record.id: record for record in records}
        conflicts = [_conflict(row, [by_id[id_] for id_ in row.ids[:MAX_MEMORIES] if id_ in by_id]) for row in rows]
        return ConflictPage([each for each in conflicts if each is not None], rows[0].total if rows else 0)

    @retry_on_conflict
    async def decide(self, caller: Caller, decision: FactChoice) -> FactChosen:
        """Keep one fact. The memories beside it that give the key another value are superseded by its memory.

        A memory that also says what the kept one does not is corrected instead: it gets the value that holds.

        Raises:
            Forbidden: the caller is an app, or may not write.
            Invalid: there are no other memories, or too many.
            NotFound: one of the memories is not active any more, or is not the caller's.
            ConflictError: a memory was changed since, or the facts do not disagree.
        """
        caller.must_be_owner("decide which fact holds", everywhere=False)
        caller.may_write()
        caller.may_read()
        if not decision.others:
            raise Invalid("other", "must name the other memories")
        validation.count(decision.others, "other", self._limits.ids, "limits.ids")
        action = uuid4()
        async with self._database.transaction() as tx:
            rows = await locked(tx, caller, [decision.kept, *decision.others])
            own_facts, others = _contradictions(decision, rows)
            await undoing.remember(tx, action, Memory.id == func.any(list(others)), caller.parameters)
            corrected = 0
            for id_, facts in others.items():
                if facts.items() - {(decision.key, facts[decision.key])} <= own_facts.items():
                    await superseding.supersede(tx, caller, id_, decision.kept.id)
                else:
                    await self._correct(tx, caller, id_, merged(facts, {decision.key: own_facts[decision.key]}).text)
                    corrected += 1
        superseded = len(others) - corrected
        self._written["supersede"] += superseded
        self._written["update"] += corrected
        self._delivery.wake()
        return FactChosen(own_facts[decision.key], superseded, corrected, action)

    async def _correct(self, tx: Tx, caller: Caller, memory_id: UUID, text: str) -> None:
        change = self._intake.changed(MemoryUpdate(text))
        await changes.update_text(tx, caller, Memory.id == memory_id, change, self._intake.labels)
        await access_log.record(tx, caller, AccessType.UPDATE, [memory_id], {"operation": "conflict"})


def _contradictions(decision: FactChoice, rows: Mapping[UUID, Any]) -> tuple[Pairs, dict[UUID, Pairs]]:
    """Returns the facts of the kept memory, and those of the memories of its namespace that contradict it on the key.

    Raises:
        ConflictError: there are no such others.
    """
    memory, key = rows[decision.kept.id], decision.key
    own_facts = parsed(memory.content) or {}
    all_facts = {row.id: parsed(row.content) or {} for row in rows.values() if row.namespace == memory.namespace}
    others = {id_: facts for id_, facts in all_facts.items() if key in facts and facts[key] != own_facts.get(key)}
    if key not in own_facts or not others:
        raise ConflictError(
            "These memories do not disagree on this key.", code="no_conflict", hint="Load the page again."
        )
    return own_facts, others


def _conflict(row: Any, records: Sequence[MemoryRecord]) -> FactConflict | None:
    """The conflict of a row of `statement`. None if the memories do not disagree: PostgreSQL reads texts less strictly
    than `parsed`, and a memory may have changed since."""
    facts = []
    for record in records:
        pairs = parsed(record.content) or {}
        if row.key in pairs:
            facts.append(Fact(pairs[row.key], len(pairs) == 1, record))
    if len({fact.value for fact in facts}) < 2:
        return None
    return FactConflict(row.key, row.namespace, facts, max(0, len(row.ids) - MAX_MEMORIES))


@cache
def statement(owner: bool, default: Default, *, everywhere: bool) -> CompiledStatement:
    """A page of the disputed keys with the ids of the memories that have them, newest first, and the total.

    Binds the caller's parameters, `skipped` and `size`.
    """
    facts = facts_of(Caller.anyone(owner=owner, default=default, everywhere=everywhere))
    ids = func.array_agg(aggregate_order_by(facts.c.id, facts.c.updated_at.desc(), facts.c.id))
    query = (
        disputes_of(facts)
        .add_columns(ids.label("ids"), func.count().over().label("total"))
        .order_by(func.max(facts.c.updated_at).desc(), facts.c.namespace, facts.c.key)
        .offset(bindparam("skipped", type_=Integer))
        .limit(bindparam("size", type_=Integer))
    )
    return CompiledStatement(query)
