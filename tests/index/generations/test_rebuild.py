"""A change of the model, over the real stores: searches go on, the new collection takes over, the way back is kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services
from tests.faults.embedding_server import EmbeddingServer
from tests.index.models import LOCAL, ann, begun, collections, filled, put, running


async def by_meaning(services: Services) -> int:
    """How many of the best ten have a place by meaning."""
    answer = await services.search.search(await ann(services), SearchQuery("a fact about tea"))
    assert answer.note is None
    assert answer.search_method is Method.HYBRID
    return sum(result.parts.cosine is not None for result in answer.results)


async def test_the_first_model_is_in_use_at_once(folder: Path) -> None:
    await filled(folder, 3)
    async with running(folder) as services:
        assert await collections(services) == {LOCAL: "active"}


@pytest.mark.slow
async def test_another_model_takes_over_when_complete_and_searches_never_stop(
    folder: Path, server: EmbeddingServer
) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        caller = await ann(services)
        assert await by_meaning(services) == 10
        assert services.embedder.model == "all-MiniLM-L6-v2-int8"

        await services.rebuild.step()

        other = next(name for name in await collections(services) if name != LOCAL)
        assert await collections(services) == {other: "active", LOCAL: "retired"}
        assert services.embedder.model == "openai/other"
        assert await by_meaning(services) == 10
        assert await services.index.count() == len(ids)
        assert (await services.reconciler.sync(trigger="test")).unchanged == len(ids)
        [run] = [run for run in await services.reconciler.runs(10) if run.trigger == "rebuild"]
        assert (run.status, run.collection, run.expected) == ("success", other, len(ids))
        assert run.statistics.embedded == len(ids)
        found = await services.search.search(caller, SearchQuery("fact number 7 about tea"))
        assert found.results[0].memory == "fact number 7 about tea"


@pytest.mark.slow
async def test_what_is_written_while_the_new_collection_is_filled_reaches_both(
    folder: Path, server: EmbeddingServer
) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        caller = await ann(services)
        building = await begun(services)
        added = await services.memories.add(caller, MemoryCreate(text="tea is served at five"))
        await services.memories.update(caller, ids[0], MemoryUpdate(text="tea is never served"))
        await services.memories.delete(caller, [ids[1]])
        await services.outbox_delivery.drain()
        for space in (services.spaces.serving, building):
            entries = {entry.id: entry.revision async for page in space.index.entries() for entry in page}
            assert (entries[added.id], entries[ids[0]], ids[1] in entries) == (1, 2, False)
        await services.rebuild.step()
        assert await services.index.count() == len(ids)


@pytest.mark.slow
async def test_a_rebuild_that_was_cut_off_embeds_nothing_twice(folder: Path, server: EmbeddingServer) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        await put(services, await begun(services), ids[:7])
    async with running(folder, server) as services:
        await services.rebuild.step()
        assert await services.index.count() == len(ids)
    texts = [one for one in server.embedded if one.startswith("fact number")]
    assert sorted(texts) == sorted(f"fact number {n} about tea" for n in range(len(ids)))


@pytest.mark.slow
async def test_a_new_model_that_does_not_answer_leaves_the_old_one_in_use_and_comes_later(
    folder: Path, server: EmbeddingServer
) -> None:
    await filled(folder)
    async with running(folder, server) as services:
        await services.rebuild._watcher.want()
        server.dimension = 25  # what it answers from now on is of no use
        await services.rebuild.step()
        assert set((await collections(services)).values()) == {"active", "building"}
        assert await by_meaning(services) == 10
        added = await services.memories.add(await ann(services), MemoryCreate(text="tea without the new model"))
        done = await services.outbox_delivery.drain()
        assert (done.failed, done.written) == (0, 1)
        assert services.spaces.building is not None
        assert services.spaces.building.missed >= 1
        found = await services.search.search(await ann(services), SearchQuery("tea without the new model"))
        assert (found.results[0].id, found.results[0].parts.cosine) == (added.id, pytest.approx(1, abs=5e-3))


@pytest.mark.slow
async def test_the_way_back_embeds_only_what_was_written_since(folder: Path, server: EmbeddingServer) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        await services.rebuild.step()
        caller = await ann(services)
        await services.memories.add(caller, MemoryCreate(text="written under the new model"))
        await services.memories.erase(caller, [ids[0]])
        await services.outbox_delivery.drain()
        # An erased memory is in no collection, in use or not.
        [old] = services.spaces.retired
        assert ids[0] not in {entry.id async for page in old.index.entries() for entry in page}
    async with running(folder) as services:
        await services.rebuild.step()
        assert (await collections(services))[LOCAL] == "active"
        [run] = [run for run in await services.reconciler.runs(1) if run.trigger == "rebuild"]
        assert (run.statistics.embedded, run.statistics.memories_synced) == (1, 1)
        assert await services.index.count() == len(ids)
        assert await by_meaning(services) == 10


@pytest.mark.slow
async def test_an_old_collection_goes_with_its_vectors_when_it_was_kept_long_enough(
    folder: Path, server: EmbeddingServer
) -> None:
    ids = await filled(folder)
    async with running(folder, server, keep=0) as services:
        await services.rebuild.step()
        await services.rebuild.step()
        assert list((await collections(services)).values()) == ["active"]
        assert sorted(path.name for path in (folder / "qdrant").iterdir() if path.is_dir()) == [
            services.spaces.serving.collection
        ]
        async with services.database.statement() as tx:
            models = (await tx.execute(text("SELECT model, count(*) FROM embeddings GROUP BY model"))).all()
        assert [tuple(row) for row in models] == [("openai/other", len(ids))]


@pytest.mark.slow
async def test_without_the_old_model_words_answer_until_the_new_one_is_complete(
    folder: Path, server: EmbeddingServer
) -> None:
    await filled(folder)
    async with running(folder) as services, services.database.transaction() as tx:
        # As left by a version whose packaged model this one does not have.
        await tx.execute(
            text("UPDATE index_generations SET model = 'gone', collection = 'openmemory__gone__384'"),
        )
    async with running(folder, server) as services:
        caller = await ann(services)
        answer = await services.search.search(caller, SearchQuery("a fact about tea"))
        assert (len(answer.results), answer.note) == (10, "Using text search (embedder unavailable)")
        await services.rebuild.step()
        assert await by_meaning(services) == 10


@pytest.mark.slow
async def test_a_model_that_changes_its_dimension_is_built_anew_and_nobody_is_shown_an_error(
    folder: Path, server: EmbeddingServer
) -> None:
    async with running(folder, server) as services:
        caller = await ann(services)
        await services.memories.add_many(caller, [MemoryCreate(text=f"fact number {n} about tea") for n in range(12)])
        await services.rebuild.step()
        await services.reconciler.sync(trigger="test")
        assert await by_meaning(services) == 10
    server.dimension = 32
    async with running(folder, server) as services:
        caller = await ann(services)
        answer = await services.search.search(caller, SearchQuery("a fact about tea"))
        assert (len(answer.results), answer.note) == (10, "Using text search (vector store unavailable)")
        added = await services.memories.add(caller, MemoryCreate(text="tea in another dimension"))
        await services.rebuild.step()
        assert await by_meaning(services) == 10
        states = await collections(services)
        assert {name.split("__")[2]: state for name, state in states.items()} == {"32": "active", "24": "retired"}
        async with services.database.transaction() as tx:
            await tx.execute(text("UPDATE index_outbox SET due_at = now()"))
        await services.outbox_delivery.drain()
        found = await services.search.search(caller, SearchQuery("tea in another dimension"))
        assert (found.results[0].id, found.results[0].parts.cosine) == (added.id, pytest.approx(1, abs=1e-3))
