from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from uuid import UUID

import pytest
from sqlalchemy import func, select, text

from openmemory.config.settings import Settings
from openmemory.database.engine import Tx
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind, OutboxEntry
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import IDLE, LEASE, RENEW_AFTER, OutboxDelivery
from openmemory.index.sync.outbox import ClaimedEntry
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.candidates.own_writes import LATE
from openmemory.search.candidates.retrieval import INDEX_BEHIND
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import INDEXED_TABLES, Services, open_services
from tests.clusters import furnish


class Switched:
    """The real embedder behind a switch: what an embedder does that is away."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.model, self.chunking, self.tokenwise = inner.model, inner.chunking, inner.tokenwise
        self.away = False
        self.texts = 0

    async def dimension(self) -> int:
        return await self.inner.dimension()

    async def query(self, text: str) -> QueryEmbedding:
        return await self.inner.query(text)

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        return await self.inner.chunks(texts)

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        if self.away:
            raise EmbedderUnavailable("switched off")
        self.texts += len(texts)
        return await self.inner.documents(texts)

    async def close(self) -> None:
        return None


def around(services: Services, embedder: Switched) -> Spaces:
    """The space that serves, with another embedder."""
    return Spaces(Space(CachedEmbedder(embedder), services.index))


@pytest.fixture
async def undisturbed(services: Services, deliver_all) -> AsyncIterator[None]:
    """Nothing is delivered in the background while the test runs, and no mark of it stays claimed."""
    await services.outbox_delivery.stop()
    yield
    await deliver_all()
    services.outbox_delivery.start()


async def claim_of(tx: Tx, memory_id: UUID) -> list[ClaimedEntry]:
    """Claim what is due and keep the mark of one memory: other tests leave theirs."""
    return [mark for mark in await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=300) if mark.id == memory_id]


async def mark_of(services: Services, memory_id) -> OutboxEntry | None:
    async with services.database.statement() as tx:
        return (
            await tx.execute(
                select(OutboxEntry.revision, OutboxEntry.attempts, OutboxEntry.last_error).where(
                    OutboxEntry.id == memory_id
                )
            )
        ).one_or_none()


async def test_a_new_memory_is_found_by_its_words_at_once_and_by_its_meaning_soon(
    services: Services, app_caller: Caller, eventually
):
    added = await services.memories.add(app_caller, MemoryCreate(text="My dog's name is Biscuit."))
    by_words = await services.search.search(app_caller, SearchQuery("Biscuit"))
    assert [result.id for result in by_words.results] == [added.id]

    async def by_meaning() -> bool:
        answer = await services.search.search(app_caller, SearchQuery("what is my puppy called"))
        return answer.search_method is Method.HYBRID and [result.id for result in answer.results] == [added.id]

    await eventually(by_meaning, within=1.0)


async def test_delivery_lowers_the_flag_and_keeps_the_vector(services: Services, app_caller: Caller, eventually):
    added = await services.memories.add(app_caller, MemoryCreate(text="I play the cello."))

    async def settled() -> bool:
        return await mark_of(services, added.id) is None

    await eventually(settled)
    async with services.database.statement() as tx:
        size = await tx.scalar(text("SELECT length(vector) FROM embeddings WHERE id = :id"), {"id": added.id})
    assert size == 384 * 4


@pytest.mark.usefixtures("undisturbed")
async def test_an_embedder_that_is_away_loses_nothing_and_delivery_resumes(services: Services, app_caller: Caller):
    switched = Switched(services.embedder)
    outbox_delivery = OutboxDelivery(services.database, around(services, switched), INDEXED_TABLES)
    added = await services.memories.add(app_caller, MemoryCreate(text="I collect stamps from Peru."))
    switched.away = True
    done = await outbox_delivery.drain()
    assert done.failed >= 1
    mark = await mark_of(services, added.id)
    assert mark is not None
    assert mark.last_error == "switched off"
    found = await services.search.search(app_caller, SearchQuery("stamps"))
    assert [result.id for result in found.results] == [added.id]
    switched.away = False
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE index_outbox SET due_at = now() WHERE id = :id"), {"id": added.id})
    assert (await outbox_delivery.drain()).written >= 1
    assert await mark_of(services, added.id) is None


@pytest.mark.usefixtures("undisturbed")
async def test_a_flag_raised_while_its_delivery_runs_stays_raised(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I drive a Fiat."))
    async with services.database.transaction() as tx:
        claimed = await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=60)
    await services.memories.update(app_caller, added.id, MemoryUpdate(text="I drive a Volvo."))
    async with services.database.transaction() as tx:
        assert added.id not in {mark.id for mark in await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=60)}
    async with services.database.transaction() as tx:
        await outbox.complete(tx, claimed)
    async with services.database.transaction() as tx:
        again = await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=0)
    assert added.id in {mark.id for mark in again}


@pytest.mark.usefixtures("undisturbed")
async def test_a_lease_that_ran_out_is_taken_over(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I ski."))
    async with services.database.transaction() as tx:
        await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=0)
    async with services.database.transaction() as tx:
        assert added.id in {mark.id for mark in await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=0)}


@pytest.mark.usefixtures("undisturbed")
async def test_a_search_notes_that_a_write_waits_for_a_process_that_ended(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I fence on Mondays."))
    query = SearchQuery("fencing")
    async with services.database.transaction() as tx:
        await claim_of(tx, added.id)
    assert (await services.search.search(app_caller, query)).note != INDEX_BEHIND

    async def change(values: str) -> None:
        async with services.database.transaction() as tx:
            await tx.execute(text(f"UPDATE index_outbox SET {values} WHERE id = :id"), {"id": added.id})

    await change(f"written_at = written_at - interval '{LATE + 1} s'")
    answer = await services.search.search(app_caller, query)
    assert (answer.note, answer.search_method) == (INDEX_BEHIND, Method.HYBRID)
    await change(f"attempts = {outbox.STUCK_AFTER}")
    assert (await services.search.search(app_caller, query)).note != INDEX_BEHIND, "a text that no model accepts"
    await change("attempts = 1, due_at = now()")
    await services.outbox_delivery.drain()
    assert (await services.search.search(app_caller, query)).note != INDEX_BEHIND


@pytest.mark.slow
async def test_what_a_killed_process_had_claimed_is_delivered_within_half_a_minute(
    services: Services, app_caller: Caller, eventually
):
    await services.outbox_delivery.stop()
    added = await services.memories.add(app_caller, MemoryCreate(text="I row."))
    async with services.database.transaction() as tx:
        await outbox.claim(tx, ItemKind.MEMORY, limit=1000, lease=LEASE)
    services.outbox_delivery.start()

    async def delivered() -> bool:
        return await mark_of(services, added.id) is None

    assert LEASE + IDLE <= 30
    assert 3 * RENEW_AFTER < LEASE
    await eventually(delivered, within=60)


@pytest.mark.usefixtures("undisturbed")
async def test_no_plan_claims_more_than_the_limit(services: Services, app_caller: Caller):
    await services.outbox_delivery.drain()
    async with services.database.transaction() as tx:
        await tx.execute(text("ANALYZE index_outbox"))  # the planner now expects one entry
    for number in range(6):
        await services.memories.add(app_caller, MemoryCreate(text=f"I have {number} hats."))
    async with services.database.transaction() as tx:
        assert len(await outbox.claim(tx, ItemKind.MEMORY, limit=2, lease=0)) == 2


@pytest.mark.usefixtures("undisturbed")
async def test_a_text_that_comes_back_is_not_embedded_again(services: Services, owner: Caller):
    switched = Switched(services.embedder)
    outbox_delivery = OutboxDelivery(services.database, around(services, switched), INDEXED_TABLES)
    added = await services.memories.add(owner, MemoryCreate(text="I bake bread."))
    await outbox_delivery.drain()
    embedded = switched.texts
    await services.memories.delete(owner, [added.id])
    await outbox_delivery.drain()
    await services.memories.restore(owner, [added.id])
    await outbox_delivery.drain()
    assert switched.texts == embedded
    assert await services.index.count(owner.user_id) == 1


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("attempts", [1, 5, 40])
async def test_the_pause_after_failures_grows_and_is_bounded(services: Services, app_caller: Caller, attempts: int):
    added = await services.memories.add(app_caller, MemoryCreate(text=f"pause {attempts}"))
    async with services.database.transaction() as tx:
        claimed = await claim_of(tx, added.id)
        await tx.execute(text("UPDATE index_outbox SET attempts = :n WHERE id = :id"), {"n": attempts, "id": added.id})
        await outbox.postpone(tx, claimed, "why", base=0.5, ceiling=300)
        pause = await tx.scalar(
            text("SELECT extract(epoch FROM due_at - now()) FROM index_outbox WHERE id = :id"), {"id": added.id}
        )
    nominal = 0.5 * 2 ** min(attempts, 16)
    assert min(300, nominal * 0.5) - 0.01 <= float(pause) <= min(300, nominal * 1.5) + 0.01


@pytest.mark.usefixtures("undisturbed")
async def test_a_kept_vector_of_another_size_is_made_anew(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I play the oboe."))
    await services.outbox_delivery.drain()
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE embeddings SET vector = '\\x00000000' WHERE id = :id"), {"id": added.id})
        await outbox.add_entries(tx, ItemKind.MEMORY, [added.id])
    done = await services.outbox_delivery.drain()
    assert (done.failed, done.embedded >= 1) == (0, True)
    assert await mark_of(services, added.id) is None


@pytest.mark.usefixtures("undisturbed")
async def test_a_flag_raised_while_settling_waits_is_due_at_once(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I row."))
    async with services.database.transaction() as tx:
        claimed = await claim_of(tx, added.id)

    async def settled() -> None:
        async with services.database.transaction() as tx:
            await outbox.complete(tx, claimed)

    async with services.database.transaction() as tx:
        await outbox.add_entries(tx, ItemKind.MEMORY, [added.id])
        settling = asyncio.create_task(settled())
        async with services.database.statement() as watching:
            blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            deadline = time.monotonic() + 15
            while not await watching.scalar(blocked):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
    await settling
    async with services.database.statement() as tx:
        due = await tx.scalar(select(OutboxEntry.due_at <= func.now()).where(OutboxEntry.id == added.id))
    assert due is True


@pytest.mark.usefixtures("undisturbed")
async def test_raising_a_flag_ends_the_pause_after_a_failure_but_no_lease(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I sail."))

    async def due() -> bool:
        async with services.database.transaction() as tx:
            await outbox.add_entries(tx, ItemKind.MEMORY, [added.id])
            return bool(await tx.scalar(select(OutboxEntry.due_at <= func.now()).where(OutboxEntry.id == added.id)))

    async with services.database.transaction() as tx:
        claimed = await claim_of(tx, added.id)
    assert await due() is False
    async with services.database.transaction() as tx:
        await outbox.postpone(tx, claimed, "away", base=100)
    assert await due() is True


@pytest.mark.slow
async def test_what_a_stopped_process_had_claimed_is_delivered_by_the_next_start(short_folder, eventually):
    settings = Settings(data_dir=str(furnish(short_folder / "restarted")), port=0)
    async with open_services(settings) as first:
        await first.outbox_delivery.stop()
        caller = await first.directory.caller("ann", None, owner=True)
        added = await first.memories.add(caller, MemoryCreate(text="I knit."))
        async with first.database.transaction() as tx:
            assert await claim_of(tx, added.id)
    async with open_services(settings) as second:

        async def delivered() -> bool:
            return await mark_of(second, added.id) is None

        await eventually(delivered)


@pytest.mark.usefixtures("undisturbed")
async def test_the_end_of_all_leases_ends_no_pause_after_a_failure(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I weave."))
    async with services.database.transaction() as tx:
        await outbox.postpone(tx, await claim_of(tx, added.id), "away", base=100)
        await outbox.end_leases(tx)
        assert not await claim_of(tx, added.id)


@pytest.mark.usefixtures("undisturbed")
async def test_a_mark_that_another_process_settled_meanwhile_is_raised_again(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I fence."))
    async with services.database.transaction() as tx:
        slow = await claim_of(tx, added.id)
        # Its lease ends, another process takes it over and is done first.
        await outbox.end_leases(tx)
        await outbox.complete(tx, await claim_of(tx, added.id))
    assert await mark_of(services, added.id) is None
    async with services.database.transaction() as tx:
        await outbox.complete(tx, slow)
    assert await mark_of(services, added.id) is not None


@pytest.mark.usefixtures("undisturbed")
async def test_a_lease_is_renewed_while_its_holder_works_and_not_when_another_has_it(
    services: Services, app_caller: Caller
):
    added = await services.memories.add(app_caller, MemoryCreate(text="I juggle."))

    async def left(tx: Tx) -> float:
        due = text("SELECT extract(epoch FROM due_at - now()) FROM index_outbox WHERE id = :id")
        return float(await tx.scalar(due, {"id": added.id}))

    async with services.database.transaction() as tx:
        first = await claim_of(tx, added.id)
        await outbox.renew(tx, first, lease=5000)
        assert await left(tx) == pytest.approx(5000, abs=1)
        await outbox.end_leases(tx)
        await claim_of(tx, added.id)
        await outbox.renew(tx, first, lease=5000)
        assert await left(tx) == pytest.approx(300, abs=1)


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize("column", ["claimed", "postponed"])
async def test_what_a_wrong_clock_put_off_for_years_is_delivered(services: Services, app_caller: Caller, column: str):
    added = await services.memories.add(app_caller, MemoryCreate(text=f"I canoe, {column}."))
    async with services.database.transaction() as tx:
        claimed = await claim_of(tx, added.id)
        if column == "postponed":
            await outbox.postpone(tx, claimed, "away", base=100)
        # As after the server's clock was set back by ten years.
        await tx.execute(
            text("UPDATE index_outbox SET due_at = due_at + interval '10 years' WHERE id = :id"), {"id": added.id}
        )
        assert not await claim_of(tx, added.id)
        await outbox.reset_impossible_times(tx)
        assert await claim_of(tx, added.id)


@pytest.mark.usefixtures("undisturbed")
async def test_mending_times_ends_no_lease_and_no_pause_of_our_own(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="I kayak."))
    async with services.database.transaction() as tx:
        claimed = await claim_of(tx, added.id)
        await outbox.reset_impossible_times(tx)
        assert not await claim_of(tx, added.id)
        await outbox.postpone(tx, claimed, "away", base=1e9)
        await outbox.reset_impossible_times(tx)
        assert not await claim_of(tx, added.id)


async def test_a_deliverer_that_is_woken_just_before_it_is_stopped_stops(services: Services):
    async with asyncio.timeout(30):
        for _ in range(10):
            outbox_delivery = OutboxDelivery(services.database, services.spaces, INDEXED_TABLES)
            outbox_delivery.start()
            await asyncio.sleep(0.05)  # by then it waits, most of the time
            outbox_delivery.wake()
            await outbox_delivery.stop()
