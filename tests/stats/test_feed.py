from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from openmemory.errors import Forbidden
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door
from openmemory.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.services import Services
from openmemory.stats import feed
from openmemory.stats.feed import READ, WRITES

ALL = (*WRITES, *READ)


async def test_the_feed_tells_what_came_in_and_what_apps_read(services: Services, owner: Caller, app_caller: Caller):
    ids = [
        one.id
        for one in await services.memories.add_many(
            app_caller, [MemoryCreate(f"Fact {n}" + "x" * 400) for n in range(5)]
        )
    ]
    await services.memories.list(app_caller, MemoryQuery())
    await services.memories.list(owner, MemoryQuery())
    await services.memories.list(await services.directory.preview(owner, app_caller.app_id), MemoryQuery())
    await services.memories.update(owner, ids[0], MemoryUpdate("Changed"))
    page = await services.feed.page(owner, ALL)
    assert [(entry.event, entry.app_name, entry.count) for entry in page.entries] == [
        ("memory.update", "openmemory", 1),
        ("memory.list", "claude", 5),
        ("memory.add", "claude", 5),
    ]
    assert [memory.text for memory in page.entries[0].memories] == ["Changed"]
    assert len(page.entries[2].memories) == 3
    assert max(len(memory.text) for memory in page.entries[2].memories) == 300
    assert page.next is None
    assert [entry.event for entry in (await services.feed.page(owner, READ)).entries] == ["memory.list"]


async def test_an_assistant_with_the_default_name_is_in_the_feed(services: Services, owner: Caller):
    await services.memories.add(owner, MemoryCreate("Fact"))
    assistant = await services.directory.caller(
        owner.user, owner.app, principal=replace(owner.principal, door=Door.MCP)
    )
    await services.memories.list(assistant, MemoryQuery())
    assert [entry.event for entry in (await services.feed.page(owner, READ)).entries] == ["memory.list"]


async def test_pages_and_what_is_new_follow_the_ids(services: Services, owner: Caller, app_caller: Caller):
    for number in range(5):
        await services.memories.add(app_caller, MemoryCreate(f"Fact {number}"))
    first = await services.feed.page(owner, WRITES, limit=3)
    assert [entry.memories[0].text for entry in first.entries] == ["Fact 4", "Fact 3", "Fact 2"]
    rest = await services.feed.page(owner, WRITES, before=first.next, limit=3)
    assert [entry.memories[0].text for entry in rest.entries] == ["Fact 1", "Fact 0"]
    assert rest.next is None
    new = await services.feed.since(owner, WRITES, first.entries[2].id)
    assert [entry.id for entry in new] == [entry.id for entry in first.entries[:2]]
    assert await services.feed.since(owner, WRITES, first.entries[0].id) == []


async def test_the_feed_is_the_users_own(services: Services, owner: Caller, app_caller: Caller):
    await services.memories.add(app_caller, MemoryCreate("Fact"))
    stranger = await services.directory.caller(f"{owner.user}-other", None, owner=True)
    assert (await services.feed.page(stranger, ALL)).entries == []
    for caller in (app_caller, replace(owner, principal=replace(owner.principal, namespaces=("work",)))):
        with pytest.raises(Forbidden):
            await services.feed.page(caller, ALL)
        with pytest.raises(Forbidden):
            await services.feed.since(caller, ALL, 0)


async def test_looking_for_something_new_reads_an_index(services: Services, owner: Caller):
    async with services.database.transaction() as tx:
        for detour in ("seqscan", "bitmapscan", "sort"):  # which are cheaper while the table is small
            await tx.execute(text(f"SET LOCAL enable_{detour} = off"))
        values = owner.parameters | {"events": list(ALL), "own": owner.app, "before": 2**62, "after": 1, "limit": 1}
        plan = await feed._statement(owner.default).plan(tx, values, "COSTS OFF, GENERIC_PLAN")
    assert "Backward using ix_audit_events_user_id" in plan, plan
    assert "Sort Key: audit_events" not in plan, plan
