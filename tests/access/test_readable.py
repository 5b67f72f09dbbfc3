"""`readable_by` against a plain model of its rules, over random rules and memories."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from openmemory.access.readable import readable_by
from openmemory.access.schemas import GrantCreate
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

APPS = ("claude", "cursor")
NAMESPACES = ("default", "work")
CATEGORIES = ("health", "finance")


@dataclass(frozen=True)
class Row:
    id: UUID
    app: str
    namespace: str
    categories: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    app: str | None
    effect: str
    object_type: str
    object: str | None

    def speaks_of(self, row: Row) -> bool:
        match self.object_type:
            case "all":
                return True
            case "memory":
                return self.object == str(row.id)
            case "app":
                return self.object == row.app
            case "namespace":
                return self.object == row.namespace
            case _:
                return self.object in row.categories


def may_read(app: str, row: Row, rules: list[Rule], default: str) -> bool:
    """The rules in words: this app's rules first, then every app's; deny before allow; then the default."""
    for subject in (app, None):
        effects = {rule.effect for rule in rules if rule.app == subject and rule.speaks_of(row)}
        if effects:
            return "deny" not in effects
    if default == "own_app":
        return row.app == app
    return not any(rule.app == app and rule.effect == "allow" for rule in rules)


@st.composite
def rule(draw: st.DrawFn) -> tuple[str | None, str, str, int]:
    return (
        draw(st.sampled_from([*APPS, None])),
        draw(st.sampled_from(["allow", "deny"])),
        draw(st.sampled_from(["all", "memory", "app", "namespace", "category"])),
        draw(st.integers(0, 7)),
    )


@pytest.mark.parametrize("default", ["user", pytest.param("own_app", marks=pytest.mark.slow)])
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(drawn=st.lists(rule(), max_size=5))
async def test_what_is_readable_is_what_the_rules_say(services: Services, default: str, drawn):
    user = f"acl-{default}"
    owner = await services.directory.caller(user, None, owner=True)
    rows = await memories_of(services, owner)
    for grant in await services.grants.list(owner):
        await services.grants.revoke(owner, grant.id)
    rules = []
    for app, effect, object_type, pick in drawn:
        choice = {
            "all": None,
            "memory": str(rows[pick % len(rows)].id),
            "app": APPS[pick % 2],
            "namespace": NAMESPACES[pick % 2],
            "category": CATEGORIES[pick % 2],
        }[object_type]
        await services.grants.create(owner, GrantCreate(app=app, effect=effect, object_type=object_type, object=choice))
        rules.append(Rule(app, effect, object_type, choice))
    for app in APPS:
        caller = replace(await services.directory.caller(user, app), default=default)
        async with services.database.statement() as tx:
            found = set(await tx.scalars(select(Memory.id).where(readable_by(caller, Memory)), caller.parameters))
        assert found == {row.id for row in rows if may_read(app, row, rules, default)}


async def memories_of(services: Services, owner: Caller) -> list[Row]:
    """Eight memories, of every combination of app, namespace and category; made once."""
    page = await services.memories.list(owner, MemoryQuery(size=100))
    if not page.items:
        news = [
            MemoryCreate(text=f"{app} {namespace} {category}", app=app, namespace=namespace, categories=(category,))
            for app in APPS
            for namespace in NAMESPACES
            for category in CATEGORIES
        ]
        await services.memories.add_many(owner, news)
        page = await services.memories.list(owner, MemoryQuery(size=100))
    return [Row(item.id, item.app_name, item.namespace, tuple(item.categories)) for item in page.items]


async def test_an_app_that_may_read_nothing_is_shown_nothing(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    added = await services.memories.add(claude, MemoryCreate(text="I like tea."))
    await services.grants.create(owner, GrantCreate(app="claude", effect="deny", object_type="all"))
    assert (await services.search.search(claude, SearchQuery("tea"))).results == []
    assert (await services.memories.list(claude, MemoryQuery())).total == 0
    with pytest.raises(NotFound):
        await services.memories.get(claude, added.id)
    with pytest.raises(NotFound):
        await services.memories.delete(claude, [added.id], strict=False)
    assert await services.memories.delete_all(claude) == 0


async def test_denying_one_memory_leaves_the_others(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    secret = await services.memories.add(claude, MemoryCreate(text="tea secret"))
    plain = await services.memories.add(claude, MemoryCreate(text="tea plain"))
    await services.grants.create(
        owner, GrantCreate(app="claude", effect="deny", object_type="memory", object=str(secret.id))
    )
    answer = await services.search.search(claude, SearchQuery("tea"))
    assert [result.id for result in answer.results] == [plain.id]


async def test_a_paused_app_neither_reads_nor_writes(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    await services.memories.add(claude, MemoryCreate(text="I like tea."))
    async with services.database.transaction() as tx:
        await tx.exec_driver_sql("UPDATE apps SET is_active = false WHERE id = %s", (claude.app_id,))
    assert (await services.search.search(claude, SearchQuery("tea"))).results == []
    with pytest.raises(Forbidden, match="App claude is currently paused on OpenMemory"):
        await services.memories.add(claude, MemoryCreate(text="more"))
    assert len((await services.search.search(owner, SearchQuery("tea"))).results) == 1


async def test_nobody_reads_another_user(services: Services, new_user: str):
    mine = await services.directory.caller(new_user, "claude")
    theirs = await services.directory.caller(new_user + "-other", "claude", owner=True)
    added = await services.memories.add(mine, MemoryCreate(text="my secret garden"))
    assert (await services.search.search(theirs, SearchQuery("secret garden"))).results == []
    for attempt in (
        services.memories.get(theirs, added.id),
        services.memories.history(theirs, added.id),
        services.memories.access_log(theirs, added.id),
        services.memories.delete(theirs, [added.id]),
        services.memories.erase(theirs, [added.id]),
    ):
        with pytest.raises(NotFound):
            await attempt
