"""Lists as of an earlier time, and what changed between two times."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.errors import Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from tests.search.test_as_of import DAY, START, TEA, moved


async def told(services: Services, caller: Caller) -> list:
    """Five memories about tea, a day apart."""
    news = [MemoryCreate(text=said, created_at=START + n * DAY) for n, said in enumerate(TEA)]
    return [one.id for one in await services.memories.add_many(caller, news)]


async def then(services: Services, caller: Caller, day: float) -> list[str]:
    return [memory.content for memory in (await services.timeline.then(caller, START + day * DAY)).items]


async def test_a_list_shows_what_there_was_then(services: Services, owner: Caller):
    ids = await told(services, owner)
    assert await services.timeline.first(owner) == START
    await services.memories.update(owner, ids[0], MemoryUpdate("coffee"))
    await moved(services, ids[0], START + 3.5 * DAY)
    await services.memories.delete(owner, [ids[1]])
    await moved(services, ids[1], START + 3.6 * DAY)
    assert await then(services, owner, -1) == []
    assert await then(services, owner, 2.5) == [TEA[2], TEA[1], TEA[0]]
    assert await then(services, owner, 3.55) == [TEA[3], TEA[2], TEA[1], "coffee"]
    assert await then(services, owner, 5) == [TEA[4], TEA[3], TEA[2], "coffee"]
    page = await services.timeline.then(owner, START + 2.5 * DAY)
    assert [(memory.state, memory.same) for memory in page.items] == [
        (State.ACTIVE, True), (State.DELETED, True), (State.ACTIVE, False),
    ]  # fmt: skip


async def test_pages_follow_each_other(services: Services, owner: Caller):
    await told(services, owner)
    seen, after = [], None
    for _ in range(3):
        page = await services.timeline.then(owner, START + 9 * DAY, after=after, size=2)
        seen.append([memory.content for memory in page.items])
        after = page.next
    assert seen == [TEA[4:2:-1], TEA[2:0:-1], TEA[:1]]
    assert after is None


async def test_an_app_sees_no_more_than_now_and_its_access_is_logged(
    services: Services, owner: Caller, app_caller: Caller
):
    ids = await told(services, owner)
    await services.memories.delete(owner, [ids[1]])
    await moved(services, ids[1], START + 3.6 * DAY)
    rule = GrantCreate(effect="deny", app="claude", object_type="memory", object=str(ids[2]))
    await services.grants.create(owner, rule)
    assert await then(services, app_caller, 2.5) == [TEA[0]]
    [access] = (await services.memories.access_log(owner, ids[0])).logs
    assert (access.app_name, access.access_type) == ("claude", "list")
    stranger = await services.directory.caller(f"{owner.user}-other", None, owner=True)
    assert await then(services, stranger, 5) == []
    assert await services.timeline.first(stranger) is None


async def test_changes_are_told_with_both_texts(services: Services, owner: Caller, app_caller: Caller):
    began = datetime.now(UTC) - timedelta(seconds=1)
    first, second, third = [
        one.id
        for one in await services.memories.add_many(
            app_caller, [MemoryCreate("one"), MemoryCreate("two"), MemoryCreate("three")]
        )
    ]
    await services.memories.update(app_caller, first, MemoryUpdate("uno"))
    await services.memories.change_state(owner, [second], State.ARCHIVED)
    await services.memories.restore(owner, [second])
    await services.memories.delete(owner, [third])
    changes = (await services.timeline.changes(owner, began, datetime.now(UTC))).items
    assert [(change.what, change.before, change.content, change.app_name) for change in changes[:4]] == [
        ("deleted", None, "three", None),
        ("restored", None, "two", None),
        ("archived", None, "two", None),
        ("changed", "one", "uno", "claude"),
    ]
    assert {(change.what, change.memory_id) for change in changes[4:]} == {
        ("added", id_) for id_ in (first, second, third)
    }
    page = await services.timeline.changes(owner, began, datetime.now(UTC), size=4)
    assert page.next is not None
    rest = await services.timeline.changes(owner, began, datetime.now(UTC), size=4, after=page.next)
    assert [change.id for change in page.items + rest.items] == [change.id for change in changes]
    assert rest.next is None
    assert (await services.timeline.changes(owner, began - DAY, began)).items == []


async def test_changes_stay_within_the_namespaces_of_the_credential(
    services: Services, owner: Caller, app_caller: Caller
):
    began = datetime.now(UTC) - timedelta(seconds=1)
    await services.memories.add_many(owner, [MemoryCreate("one"), MemoryCreate("two", namespace="work")])
    limited = replace(owner, principal=replace(owner.principal, namespaces=("work",)))
    assert [each.content for each in (await services.timeline.changes(limited, began, datetime.now(UTC))).items] == [
        "two"
    ]
    with pytest.raises(Forbidden):
        await services.timeline.changes(app_caller, began, datetime.now(UTC))


async def test_times_that_cannot_be_used_are_named(services: Services, owner: Caller):
    now = datetime.now(UTC)
    with pytest.raises(Invalid, match="as_of: must lie between 1970 and now"):
        await services.timeline.then(owner, now + DAY)
    with pytest.raises(Invalid, match="since: must not be later than `until`"):
        await services.timeline.changes(owner, now, now - DAY)
    with pytest.raises(Invalid, match="until: must lie between 1970 and now"):
        await services.timeline.changes(owner, now, now + DAY)
