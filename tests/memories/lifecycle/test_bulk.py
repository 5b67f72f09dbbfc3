"""Changes of many memories, and their undo."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from openmemory.errors import ConflictError, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.lifecycle.schemas import BulkChange, Selection
from openmemory.memories.lifecycle.superseding import supersede
from openmemory.memories.schemas import Expiry, MemoryCreate, MemoryQuery, MemoryRecord, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services

DELETE = BulkChange(state=State.DELETED)


async def add(services: Services, caller: Caller, *texts: str, **more: Any) -> tuple[UUID, ...]:
    news = [MemoryCreate(text=each, **more) for each in texts]
    return tuple(each.id for each in await services.memories.add_many(caller, news))


def restored(before: MemoryRecord, after: MemoryRecord) -> bool:
    """True if nothing differs but the time of the last change."""
    return before == after._replace(updated_at=before.updated_at)


@pytest.mark.parametrize("target", [State.PAUSED, State.ARCHIVED, State.DELETED])
async def test_a_change_of_state_is_undone_exactly(services: Services, owner: Caller, target: State) -> None:
    ids = await add(services, owner, "one", "two", "three")
    await services.memories.change_state(owner, ids[:1], State.PAUSED)
    before = [await services.memories.get(owner, each) for each in ids]
    done = await services.bulk.apply(owner, Selection(ids), BulkChange(state=target))
    assert done.changed == (2 if target is State.PAUSED else 3)
    assert {(await services.memories.get(owner, each)).state for each in ids} == {target}
    assert await services.bulk.undo(owner, done.action) == (done.changed, 0)
    after = [await services.memories.get(owner, each) for each in ids]
    assert all(restored(*each) for each in zip(before, after, strict=True))
    history = await services.memories.history(owner, ids[1])
    assert [(each.old_state, each.new_state) for each in history.states][1:] == [("active", target), (target, "active")]


async def test_undoing_a_restore_brings_back_what_replaced_it(services: Services, owner: Caller) -> None:
    old, new = await add(services, owner, "the office is in Lisbon", "the office is in Porto")
    async with services.database.transaction() as tx:
        await supersede(tx, owner, old, new)
    before = await services.memories.get(owner, old)
    done = await services.bulk.apply(owner, Selection((old,)), BulkChange(state=State.ACTIVE))
    assert (await services.memories.get(owner, old)).superseded_by is None
    await services.bulk.undo(owner, done.action)
    assert restored(before, await services.memories.get(owner, old))


async def test_all_that_match_a_query_change(services: Services, owner: Caller) -> None:
    await add(services, owner, "blue car", "blue house", "red house")
    await add(services, owner, "blue note", kind="note")
    query = MemoryQuery(text="blue", kinds=("memory",), size=1)
    done = await services.bulk.apply(owner, Selection(query=query), DELETE)
    assert done.changed == 2
    assert await services.memories.count(owner) == 2
    await services.bulk.undo(owner, done.action)
    assert await services.memories.count(owner) == 4


async def test_an_expiry_is_set_and_undone(services: Services, owner: Caller) -> None:
    soon = datetime.now(UTC) + timedelta(days=3)
    ids = await add(services, owner, "one", "two", expires_at=soon)
    later = datetime.now(UTC) + timedelta(days=30)
    done = await services.bulk.apply(owner, Selection(ids), BulkChange(expiry=Expiry(later)))
    assert {(await services.memories.get(owner, each)).expires_at for each in ids} == {later}
    await services.bulk.undo(owner, done.action)
    assert {(await services.memories.get(owner, each)).expires_at for each in ids} == {soon}


async def test_filing_leaves_other_categories_and_is_undone(services: Services, owner: Caller) -> None:
    [filed] = await add(services, owner, "one", categories=("work", "home"))
    [other] = await add(services, owner, "two", categories=("home",))
    done = await services.bulk.apply(owner, Selection((filed, other)), BulkChange(category="work"))
    assert done.changed == 1
    assert (await services.memories.get(owner, other)).categories == ["home", "work"]
    await services.bulk.undo(owner, done.action)
    assert (await services.memories.get(owner, other)).categories == ["home"]
    assert (await services.memories.get(owner, filed)).categories == ["home", "work"]


async def test_what_was_changed_since_stays(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, "one", "two")
    done = await services.bulk.apply(owner, Selection(ids), BulkChange(state=State.PAUSED))
    await services.memories.update(owner, ids[0], MemoryUpdate("one, corrected"))
    assert await services.bulk.undo(owner, done.action) == (1, 1)
    assert [(await services.memories.get(owner, each)).state for each in ids] == ["paused", "active"]


async def test_an_action_is_undone_once_and_only_by_its_user(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, "one")
    done = await services.bulk.apply(owner, Selection(ids), DELETE)
    stranger = await services.directory.caller(f"{owner.user}-else", None, owner=True)
    app = await services.directory.caller(owner.user, "claude")
    with pytest.raises(NotFound):
        await services.bulk.undo(stranger, done.action)
    with pytest.raises(Forbidden):
        await services.bulk.undo(app, done.action)
    await services.bulk.undo(owner, done.action)
    with pytest.raises(NotFound, match="nothing to undo"):
        await services.bulk.undo(owner, done.action)


async def test_an_undo_that_would_make_a_duplicate_is_refused(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, "one")
    done = await services.bulk.apply(owner, Selection(ids), DELETE)
    await add(services, owner, "one")
    with pytest.raises(ConflictError, match="says exactly this"):
        await services.bulk.undo(owner, done.action)
    assert (await services.memories.get(owner, ids[0])).state == "deleted"


async def test_refusals_say_why(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, "one")
    stranger = await services.directory.caller(f"{owner.user}-else", None, owner=True)
    with pytest.raises(NotFound):
        await services.bulk.apply(stranger, Selection(ids), DELETE)
    with pytest.raises(NotFound):
        await services.bulk.apply(owner, Selection((uuid4(),)), DELETE)
    with pytest.raises(Invalid, match="memory_ids"):
        await services.bulk.apply(owner, Selection(), DELETE)
    with pytest.raises(Invalid, match="category"):
        await services.bulk.apply(owner, Selection(ids), BulkChange(category=""))
    with pytest.raises(Invalid, match="expires_at"):
        await services.bulk.apply(owner, Selection(ids), BulkChange(expiry=Expiry(datetime(2020, 1, 1, tzinfo=UTC))))
    with pytest.raises(Forbidden):
        await services.bulk.apply(await services.directory.caller(owner.user, "claude"), Selection(ids), DELETE)
    await services.bulk.apply(owner, Selection(ids), DELETE)
    assert (await services.bulk.apply(owner, Selection(ids), DELETE)).changed == 0
    with pytest.raises(ConflictError, match="cannot become paused"):
        await services.bulk.apply(owner, Selection(ids), BulkChange(state=State.PAUSED))


async def test_all_deleted_are_erased(services: Services, owner: Caller) -> None:
    ids = await add(services, owner, "one", "two", "three")
    await services.memories.delete(owner, ids[:2])
    assert await services.bulk.erase(owner, Selection(query=MemoryQuery(states=(State.DELETED,)))) == 2
    with pytest.raises(NotFound):
        await services.memories.get(owner, ids[0])
    assert (await services.memories.get(owner, ids[2])).state == "active"


async def test_what_can_no_longer_be_undone_is_forgotten(services: Services, owner: Caller) -> None:
    done = await services.bulk.apply(owner, Selection(await add(services, owner, "one")), DELETE)
    async with services.database.transaction() as tx:
        aged = "UPDATE memory_undo SET changed_at = changed_at - interval '1 hour' WHERE action = :action"
        await tx.execute(text(aged), {"action": done.action})
    with pytest.raises(NotFound, match="too long ago"):
        await services.bulk.undo(owner, done.action)
    await services.bulk.prune()
    async with services.database.statement() as tx:
        left = text("SELECT count(*) FROM memory_undo WHERE action = :action")
        assert await tx.scalar(left, {"action": done.action}) == 0
