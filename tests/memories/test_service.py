from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone
from uuid import uuid4

import pytest
from sqlalchemy import func, select, update

from openmemory.access.models import App
from openmemory.audit import access_log
from openmemory.audit.models import MemoryAccessLog
from openmemory.errors import ConflictError, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.models import Embedding
from openmemory.memories.models import Memory, MemoryCategory, MemoryRevision, MemoryStatusHistory
from openmemory.memories.schemas import Event, Expiry, MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services


async def rows_about(services: Services, memory_id) -> dict[str, int]:
    """How many rows of each table speak of a memory."""
    found = {}
    async with services.database.statement() as tx:
        for table, column in [
            (Memory, Memory.id),
            (MemoryRevision, MemoryRevision.memory_id),
            (MemoryStatusHistory, MemoryStatusHistory.memory_id),
            (MemoryAccessLog, MemoryAccessLog.memory_id),
            (MemoryCategory, MemoryCategory.memory_id),
            (Embedding, Embedding.id),
        ]:
            query = select(func.count()).select_from(table).where(column == memory_id)
            found[table.__tablename__] = await tx.scalar(query)
    return found


async def test_a_text_is_kept_to_the_letter(services: Services, app_caller: Caller):
    text = "  I prefer tabs,\nnot spaces — 日本語 😀 \u2028 'quotes' \\ %s {} "
    added = await services.memories.add(
        app_caller, MemoryCreate(text=text, metadata={"source": "chat", "n": [1, None]})
    )
    record = await services.memories.get(app_caller, added.id)
    assert added.event is Event.ADD
    assert record.content == text
    assert record.metadata_ == {"source": "chat", "n": [1, None]}
    assert (record.state, record.revision, record.namespace) == (State.ACTIVE, 1, "default")


async def test_a_new_memory_comes_from_no_state(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I have a dog."))
    history = await services.memories.history(app_caller, added.id)
    assert [(change.old_state, change.new_state) for change in history.states] == [(None, State.ACTIVE)]
    assert [(revision.old_text, revision.new_text) for revision in history.revisions] == [(None, "I have a dog.")]


async def test_the_same_text_of_the_same_app_is_stored_once(services: Services, app_caller: Caller):
    first = await services.memories.add(app_caller, MemoryCreate(text="I like tea."))
    again = await services.memories.add(app_caller, MemoryCreate(text="I like tea."))
    assert (again.event, again.id) == (Event.NONE, first.id)


async def test_the_same_text_of_another_app_or_namespace_is_another_memory(services: Services, new_user: str):
    claude = await services.directory.caller(new_user, "claude")
    cursor = await services.directory.caller(new_user, "cursor")
    ids = {
        (await services.memories.add(claude, MemoryCreate(text="I like tea."))).id,
        (await services.memories.add(cursor, MemoryCreate(text="I like tea."))).id,
        (await services.memories.add(claude, MemoryCreate(text="I like tea.", namespace="work"))).id,
    }
    assert len(ids) == 3


async def test_thirty_two_adds_of_one_text_at_once_store_it_once(services: Services, app_caller: Caller):
    added = await asyncio.gather(
        *(services.memories.add(app_caller, MemoryCreate(text="I was born in May.")) for _ in range(32))
    )
    assert len({one.id for one in added}) == 1
    assert [one.event for one in added].count(Event.ADD) == 1


async def test_a_batch_answers_in_order_and_finds_its_own_twins(services: Services, app_caller: Caller):
    texts = ["one", "two", "one", "three"]
    added = await services.memories.add_many(app_caller, [MemoryCreate(text=text) for text in texts])
    assert [one.memory for one in added] == texts
    assert [one.event for one in added] == [Event.ADD, Event.ADD, Event.NONE, Event.ADD]
    assert added[2].id == added[0].id


async def test_one_bad_memory_of_a_batch_stores_none(services: Services, app_caller: Caller):
    with pytest.raises(Invalid, match="text"):
        await services.memories.add_many(app_caller, [MemoryCreate(text="good"), MemoryCreate(text=" ")])
    assert (await services.memories.list(app_caller, MemoryQuery())).total == 0


async def test_an_expired_twin_does_not_keep_a_text_from_being_remembered(services: Services, owner: Caller):
    soon = datetime.now(UTC) + timedelta(milliseconds=150)
    first = await services.memories.add(owner, MemoryCreate(text="The code is 1234.", expires_at=soon))
    await asyncio.sleep((soon - datetime.now(UTC)).total_seconds() + 0.05)
    assert (await services.memories.list(owner, MemoryQuery())).items == []
    again = await services.memories.add(owner, MemoryCreate(text="The code is 1234."))
    assert again.event is Event.ADD
    assert again.id != first.id


async def test_an_update_writes_a_revision_and_the_new_text_is_found(
    services: Services, app_caller: Caller, eventually
):
    added = await services.memories.add(app_caller, MemoryCreate(text="I live in Lisbon."))
    updated = await services.memories.update(app_caller, added.id, MemoryUpdate(text="I live in Reykjavik."))
    assert (updated.memory.content, updated.memory.revision) == ("I live in Reykjavik.", 2)
    assert (updated.event, updated.replaced.content) == (Event.UPDATE, "I live in Lisbon.")
    history = await services.memories.history(app_caller, added.id)
    assert history.revisions[1].old_text == "I live in Lisbon."

    async def dense_hit() -> bool:
        answer = await services.search.search(app_caller, SearchQuery("Iceland's capital city"))
        return bool(answer.results) and (answer.results[0].parts.cosine or 0) > 0.3

    await eventually(dense_hit)
    stale = await services.search.search(app_caller, SearchQuery("Lisbon"))
    assert all(result.memory != "I live in Lisbon." for result in stale.results)


async def test_an_update_that_changes_nothing_writes_no_revision(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I am left-handed."))
    same = await services.memories.update(app_caller, added.id, MemoryUpdate(text="I am left-handed."))
    assert (same.event, same.memory.revision) == (Event.NONE, 1)


async def test_an_update_to_what_another_memory_says_is_a_conflict(services: Services, app_caller: Caller):
    await services.memories.add(app_caller, MemoryCreate(text="one"))
    other = await services.memories.add(app_caller, MemoryCreate(text="two"))
    with pytest.raises(ConflictError, match="says exactly this"):
        await services.memories.update(app_caller, other.id, MemoryUpdate(text="one"))
    assert (await services.memories.get(app_caller, other.id)).content == "two"


@pytest.mark.parametrize("state", [State.PAUSED, State.ARCHIVED, State.DELETED])
async def test_a_memory_that_is_not_active_is_not_found_until_it_is_restored(
    services: Services, new_user: str, state: State, eventually
):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    added = await services.memories.add(claude, MemoryCreate(text="My sister is called Ada."))
    assert await services.memories.change_state(owner, [added.id], state) == 1
    assert (await services.search.search(claude, SearchQuery("sister Ada"))).results == []
    with pytest.raises(NotFound):
        await services.memories.get(claude, added.id)
    assert await services.memories.restore(owner, [added.id]) == 1
    found = await services.search.search(claude, SearchQuery("sister Ada"))
    assert [result.id for result in found.results] == [added.id]
    history = await services.memories.history(owner, added.id)
    assert [(c.old_state, c.new_state) for c in history.states] == [
        (None, State.ACTIVE), (State.ACTIVE, state), (state, State.ACTIVE),
    ]  # fmt: skip


async def test_a_change_that_the_table_refuses_changes_nothing(services: Services, owner: Caller):
    added = await services.memories.add_many(owner, [MemoryCreate(text="a"), MemoryCreate(text="b")])
    await services.memories.delete(owner, [added[0].id])
    with pytest.raises(ConflictError, match="deleted cannot become paused"):
        await services.memories.change_state(owner, [one.id for one in added], State.PAUSED)
    assert (await services.memories.get(owner, added[1].id)).state is State.ACTIVE


async def test_restoring_what_another_active_memory_says_is_a_conflict(services: Services, owner: Caller):
    first = await services.memories.add(owner, MemoryCreate(text="same"))
    await services.memories.delete(owner, [first.id])
    await services.memories.add(owner, MemoryCreate(text="same"))
    with pytest.raises(ConflictError, match="says exactly this"):
        await services.memories.restore(owner, [first.id])


async def test_deleting_an_unknown_id_among_known_ones_deletes_none_when_strict(services: Services, owner: Caller):
    added = await services.memories.add(owner, MemoryCreate(text="keep me"))
    with pytest.raises(NotFound):
        await services.memories.delete(owner, [added.id, uuid4()])
    assert (await services.memories.get(owner, added.id)).state is State.ACTIVE
    assert await services.memories.delete(owner, [added.id, uuid4()], strict=False) == 1


async def test_delete_all_spares_other_users(services: Services, app_caller: Caller, owner: Caller):
    stranger = await services.directory.caller("stranger-" + owner.user, "claude")
    await services.memories.add(stranger, MemoryCreate(text="mine"))
    await services.memories.add_many(app_caller, [MemoryCreate(text=str(n)) for n in range(5)])
    assert await services.memories.delete_all(app_caller) == 5
    assert (await services.memories.list(app_caller, MemoryQuery())).total == 0
    assert (await services.memories.list(stranger, MemoryQuery())).total == 1


async def test_erasing_a_memory_leaves_nothing_of_it(services: Services, owner: Caller, eventually):
    added = await services.memories.add(owner, MemoryCreate(text="My PIN is a secret.", categories=("personal",)))

    async def embedded() -> bool:
        return (await rows_about(services, added.id))["embeddings"] == 1

    await eventually(embedded)
    await services.search.search(owner, SearchQuery("PIN"))
    await services.memories.update(owner, added.id, MemoryUpdate(text="My PIN was a secret."))
    assert await services.memories.erase(owner, [added.id]) == 1

    async def gone() -> bool:
        entries = [entry async for page in services.index.entries(owner.user_id) for entry in page]
        return entries == [] and set((await rows_about(services, added.id)).values()) == {0}

    await eventually(gone)


async def test_erasing_a_user_leaves_nothing_of_them_and_the_name_is_free_again(
    services: Services, new_user: str, eventually
):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    added = await services.memories.add_many(claude, [MemoryCreate(text=f"fact {n}") for n in range(20)])
    await services.outbox_delivery.drain()
    assert await services.memories.erase_user(owner) == 20

    async def gone() -> bool:
        return await services.index.count(owner.user_id) == 0

    await eventually(gone)
    for one in added:
        assert set((await rows_about(services, one.id)).values()) == {0}
    again = await services.directory.caller(new_user, "claude")
    assert again.user_id != claude.user_id
    assert (await services.memories.list(again, MemoryQuery())).total == 0


async def test_a_caller_resolved_before_the_erasure_cannot_write(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    await services.memories.erase_user(owner)
    with pytest.raises(NotFound, match="erased"):
        await services.memories.add(claude, MemoryCreate(text="too late"))


async def test_an_app_cannot_erase(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="stay"))
    with pytest.raises(Forbidden):
        await services.memories.erase(app_caller, [added.id])
    with pytest.raises(Forbidden):
        await services.memories.erase_user(app_caller)


async def test_every_read_is_logged_with_its_app_and_sort(services: Services, new_user: str):
    claude = await services.directory.caller(new_user, "claude")
    added = await services.memories.add(claude, MemoryCreate(text="I speak Esperanto."))
    await services.memories.get(claude, added.id)
    await services.memories.list(claude, MemoryQuery())
    await services.search.search(claude, SearchQuery("Esperanto"))
    user = await services.directory.caller(new_user, None, owner=True)
    log = await services.memories.access_log(user, added.id)
    assert [entry.access_type for entry in log.logs] == ["search", "list", "get"]
    assert {entry.app_name for entry in log.logs} == {"claude"}
    assert log.logs[0].metadata_["query"] == "Esperanto"
    assert log.total == 3


async def test_lists_page_without_gaps_or_repeats_and_count_what_they_show(services: Services, owner: Caller):
    await services.memories.add_many(owner, [MemoryCreate(text=f"fact {n}") for n in range(25)])
    pages = [await services.memories.list(owner, MemoryQuery(page=n, size=10)) for n in (1, 2, 3, 4)]
    ids = [item.id for page in pages for item in page.items]
    assert [len(page.items) for page in pages] == [10, 10, 5, 0]
    assert len(set(ids)) == 25
    assert {(page.total, page.pages) for page in pages} == {(25, 3)}


async def test_lists_filter_by_everything_they_promise(services: Services, new_user: str):
    owner = await services.directory.caller(new_user, None, owner=True)
    old = datetime(2024, 5, 1, tzinfo=UTC)
    await services.memories.add_many(
        owner,
        [
            MemoryCreate(
                text="alpha 100%", namespace="work", kind="decision", thread_id="t1", app="cursor", created_at=old
            ),
            MemoryCreate(text="beta", categories=("health",)),
            MemoryCreate(text="gamma"),
        ],
    )
    cursor = await services.directory.caller(new_user, "cursor", owner=True)

    async def texts(**filters) -> set[str]:
        return {item.content for item in (await services.memories.list(owner, MemoryQuery(**filters))).items}

    assert await texts(namespaces=("work",)) == {"alpha 100%"}
    assert await texts(kinds=("decision",)) == {"alpha 100%"}
    assert await texts(threads=("t1",)) == {"alpha 100%"}
    assert await texts(app_ids=(cursor.app_id,)) == {"alpha 100%"}
    assert await texts(categories=("health",)) == {"beta"}
    assert await texts(created_to=old) == {"alpha 100%"}
    assert await texts(created_from=old + timedelta(seconds=1)) == {"beta", "gamma"}
    assert await texts(text="00%") == {"alpha 100%"}
    assert await texts(text="0_%") == set()


async def test_times_with_any_offset_are_stored(services: Services, owner: Caller):
    far = datetime(2026, 5, 1, tzinfo=timezone(timedelta(hours=23, minutes=59)))
    added = await services.memories.add(owner, MemoryCreate(text="far", created_at=far, valid_from=far))
    read = await services.memories.get(owner, added.id)
    assert (read.created_at, read.valid_from) == (far, far)
    ends = datetime.now(UTC) + timedelta(days=1)
    later = Expiry(at=ends.astimezone(far.tzinfo))
    await services.memories.update(owner, added.id, MemoryUpdate(expiry=later))
    assert (await services.memories.get(owner, added.id)).expires_at == ends


@pytest.mark.parametrize("descending", [True, False])
async def test_lists_sort_by_the_column_asked_for(services: Services, owner: Caller, descending: bool):
    await services.memories.add_many(owner, [MemoryCreate(text=text) for text in ("b", "c", "a")])
    page = await services.memories.list(owner, MemoryQuery(sort="memory", descending=descending))
    assert [item.content for item in page.items] == sorted(["a", "b", "c"], reverse=descending)


async def test_a_column_that_does_not_exist_cannot_be_sorted_by(services: Services, owner: Caller):
    with pytest.raises(Invalid, match="sort_column: must be one of"):
        await services.memories.list(owner, MemoryQuery(sort="id; DROP TABLE memories"))


async def test_a_failed_write_leaves_no_trace(services: Services, owner: Caller):
    async with services.database.statement() as tx:
        before = await tx.scalar(select(func.count()).select_from(Memory))
    with pytest.raises(Invalid):
        await services.memories.add_many(owner, [MemoryCreate(text="fine"), MemoryCreate(text="nul \x00")])
    async with services.database.statement() as tx:
        assert await tx.scalar(select(func.count()).select_from(Memory)) == before


async def test_reading_what_is_erased_at_that_moment_is_no_failure(services: Services, app_caller: Caller):
    async with services.database.transaction() as tx:
        await access_log.record(tx, app_caller, access_log.AccessType.LIST, [uuid4(), uuid4()])


@pytest.mark.usefixtures("in_bulk")
async def test_two_batches_of_the_same_texts_in_opposite_order_both_succeed(services: Services, app_caller: Caller):
    news = [MemoryCreate(text=f"fact {n}") for n in range(300)]
    one, other = await asyncio.gather(
        services.memories.add_many(app_caller, news), services.memories.add_many(app_caller, news[::-1])
    )
    assert [added.id for added in one] == [added.id for added in other][::-1]
    assert [added.memory for added in one] == [new.text for new in news]


async def test_an_expired_memory_keeps_no_other_from_saying_the_same(services: Services, owner: Caller):
    soon = datetime.now(UTC) + timedelta(milliseconds=300)
    expiring = await services.memories.add(owner, MemoryCreate(text="I am in Rome.", expires_at=soon))
    other = await services.memories.add(owner, MemoryCreate(text="I am in Graz."))
    deleted = await services.memories.add(owner, MemoryCreate(text="I am in Bonn."))
    await services.memories.change_state(owner, [deleted.id], State.DELETED)
    again = await services.memories.add(owner, MemoryCreate(text="I am in Bonn.", expires_at=soon))
    await asyncio.sleep(max(0.0, (soon - datetime.now(UTC)).total_seconds()) + 0.05)
    updated = await services.memories.update(owner, other.id, MemoryUpdate(text="I am in Rome."))
    assert updated.memory.content == "I am in Rome."
    assert await services.memories.change_state(owner, [deleted.id], State.ACTIVE) == 1
    active = (await services.memories.list(owner, MemoryQuery())).items
    assert {item.id for item in active} == {other.id, deleted.id}
    assert {expiring.id, again.id}.isdisjoint(item.id for item in active)


async def test_the_apps_that_a_batch_writes_for_must_not_be_paused_and_no_others(
    services: Services, new_user: str, owner: Caller
):
    cursor = await services.directory.caller(new_user, "cursor")
    async with services.database.transaction() as tx:
        await tx.execute(update(App).where(App.id == owner.app_id).values(is_active=False))
    [added] = await services.memories.add_many(owner, [MemoryCreate(text="For cursor.", app="cursor")])
    assert (await services.memories.get(cursor, added.id)).app_name == "cursor"
    with pytest.raises(Forbidden, match="paused"):
        await services.memories.add_many(owner, [MemoryCreate(text="For nobody.")])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_a_number_that_json_cannot_say_is_refused(services: Services, app_caller: Caller, number: float):
    with pytest.raises(Invalid, match=r"metadata\.a"):
        await services.memories.add(app_caller, MemoryCreate(text="a", metadata={"a": [number]}))


async def test_an_update_is_held_to_the_limit_of_categories_too(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="a"))
    names = tuple(f"c{n}" for n in range(101))
    with pytest.raises(Invalid, match="the limit is 100"):
        await services.memories.update(app_caller, added.id, MemoryUpdate(categories=names))
