"""What an app was shown a moment ago and stores again as its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.memories import read_back
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery, MemoryRowAdded, MemoryUpdate
from openmemory.memories.state import State
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services
from tests.adding import add_verbatim

SAID = "The cabin in Tromsø has no signal."
Add = Callable[..., Awaitable[MemoryRowAdded]]


@pytest.fixture
async def claude(services: Services, new_user: str) -> Caller:
    return await services.directory.caller(new_user, "claude")


@pytest.fixture
async def cursor(services: Services, new_user: str) -> Caller:
    return await services.directory.caller(new_user, "cursor")


@pytest.fixture
def add(services: Services) -> Add:
    async def stored(caller: Caller, said: str = SAID, **more: object) -> MemoryRowAdded:
        return await add_verbatim(services.adding, caller, MemoryCreate(text=said, **more))  # type: ignore[arg-type]

    return stored


async def look(services: Services, caller: Caller) -> None:
    await services.memories.list(caller, MemoryQuery())


async def age_accesses(services: Services, memory: UUID, minutes: int) -> None:
    async with services.database.transaction() as tx:
        moved = (
            "UPDATE memory_access_logs SET accessed_at = now() - make_interval(mins => :minutes) WHERE memory_id = :id"
        )
        await tx.execute(text(moved), {"id": memory, "minutes": minutes})


@pytest.mark.parametrize("way", ["list", "search", "get"])
async def test_what_an_app_was_shown_a_moment_ago_is_not_stored_as_its_own(
    services: Services, claude: Caller, cursor: Caller, add: Add, way: str
) -> None:
    first = await add(claude)
    if way == "list":
        await look(services, cursor)
    elif way == "search":
        await services.outbox_delivery.drain()
        found = await services.search.search(cursor, SearchQuery("cabin signal"))
        assert [each.id for each in found.results] == [first.id]
    else:
        await services.memories.get(cursor, first.id)
    again = await add(cursor)
    assert (again.event, again.id, again.content, again.note) == (Event.NONE, first.id, SAID, read_back.READ_BACK)
    owner = replace(cursor, owner=True)
    assert (await services.memories.list(owner, MemoryQuery())).total == 1
    log = await services.memories.access_log(owner, first.id)
    assert log.logs[0].app_name == "cursor"


async def test_what_nobody_showed_an_app_is_its_own_memory(
    services: Services, claude: Caller, cursor: Caller, add: Add
):
    first = await add(claude)
    again = await add(cursor)
    assert again.event is Event.ADD
    assert again.id != first.id


async def test_what_was_shown_long_ago_is_stored(services: Services, claude: Caller, cursor: Caller, add: Add) -> None:
    first = await add(claude)
    await look(services, cursor)
    await age_accesses(services, first.id, read_back.MINUTES + 1)
    assert (await add(cursor)).event is Event.ADD


async def test_an_apps_own_memory_is_answered_before_anothers(
    services: Services, claude: Caller, cursor: Caller, add: Add
) -> None:
    await add(claude)
    own = await add(cursor)
    await look(services, cursor)
    again = await add(cursor)
    assert (again.event, again.id, again.note) == (Event.NONE, own.id, None)


@pytest.mark.parametrize("more", [{"namespace": "shop"}, {"said": SAID + " None."}, {"ttl_days": 3}])
async def test_what_is_not_the_same_is_stored(
    services: Services, claude: Caller, cursor: Caller, add: Add, more: dict[str, object]
) -> None:
    await add(claude)
    await look(services, cursor)
    assert (await add(cursor, **more)).event is Event.ADD


async def test_what_the_user_says_and_what_is_imported_is_stored(
    services: Services, claude: Caller, cursor: Caller, add: Add
) -> None:
    await add(claude)
    await look(services, cursor)
    [imported] = await services.memories.add_many(cursor, [MemoryCreate(text=SAID)])
    assert imported.event is Event.ADD
    other = await services.directory.caller(claude.user, "notes", owner=True)
    assert (await add(other)).event is Event.ADD


async def test_what_is_no_more_to_be_read_tells_nothing(
    services: Services, claude: Caller, cursor: Caller, add: Add
) -> None:
    """Nor what has changed since, is deleted, or was somebody else's from the start."""
    first = await add(claude)
    await look(services, cursor)
    owner = replace(cursor, owner=True)
    rule = await services.grants.create(
        owner, GrantCreate(effect="deny", object_type="memory", object=str(first.id), app="cursor")
    )
    denied = await add(cursor)
    assert denied.event is Event.ADD
    await services.grants.revoke(owner, rule.id)
    await services.memories.delete(owner, [denied.id])
    await services.memories.change_state(owner, [first.id], State.PAUSED)
    paused = await add(cursor)
    assert paused.event is Event.ADD
    await services.memories.delete(owner, [paused.id])
    await services.memories.change_state(owner, [first.id], State.ACTIVE)
    await services.memories.update(owner, first.id, MemoryUpdate("The cabin in Tromsø has signal again."))
    assert (await add(cursor)).event is Event.ADD
    stranger = await services.directory.caller(f"{claude.user}-else", "cursor")
    assert (await add(stranger)).event is Event.ADD


async def test_who_may_not_read_is_told_nothing(services: Services, claude: Caller, cursor: Caller, add: Add) -> None:
    await add(claude)
    await look(services, cursor)
    writes = replace(cursor, principal=replace(cursor.principal, scopes=frozenset({Scope.WRITE})))
    assert (await add(writes)).event is Event.ADD


async def test_pairs_that_were_shown_are_no_news_either(services: Services, claude: Caller, cursor: Caller, add: Add):
    first = await add(claude, "budget=40K | owner=Ann")
    await look(services, cursor)
    again = await add(cursor, "budget=40K | owner=Ann")
    assert (again.event, again.id) == (Event.NONE, first.id)
