"""The path of a long text: its chunks are embedded, stored, found and rebuilt, and replaced if they were others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import TextEmbedding
from openmemory.index.sync import writer
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services
from tests.index.models import ann, running

WHOLE_TEXTS = "whole texts of 384"

CHAT = "The quarterly report lists revenue, costs and staff of every office in Europe. " * 30
LAST = (
    "Grandmother keeps the spare key under the blue flowerpot beside the garden door. Whoever comes late takes"
    " the spare key from there, opens the house, and puts the spare key back under the flowerpot, so that the next"
    " one finds it. The neighbours know where the spare key is, and water the flowers when nobody is at home."
)


async def cosine(services: Services, query: str) -> float | None:
    found = await services.search.search(await ann(services), SearchQuery(query))
    assert found.note is None, found.note
    return max((result.parts.cosine or 0 for result in found.results if result.memory.endswith(LAST)), default=None)


async def kept(services: Services) -> list[tuple[int, str]]:
    async with services.database.statement() as tx:
        found = await tx.execute(text("SELECT length(vector) / 1536 AS chunks, chunking FROM embeddings ORDER BY 1, 2"))
        return [(row.chunks, row.chunking) for row in found]


async def added(services: Services, *texts: str) -> None:
    await services.memories.add_many(await ann(services), [MemoryCreate(text=said) for said in texts])
    await services.outbox_delivery.drain()


async def test_a_long_text_is_found_by_its_last_sentence(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        await added(services, CHAT + LAST, *(f"{CHAT[: 300 + n]} {n}" for n in range(30)))
        assert (await cosine(services, "Where is the spare key?") or 0) > 0.35
        [*_, (chunks, chunking)] = await kept(services)
        assert chunks > 5
        assert chunking.endswith("tokens of 384")


@pytest.fixture
async def whole_texts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that was filled with another chunk size: every text has one vector, even the long one."""
    chunked = LocalEmbedder.documents

    async def one_vector(self: LocalEmbedder, texts: list[str]) -> list[TextEmbedding]:
        return [TextEmbedding(made.chunks[:1], None) for made in await chunked(self, texts)]

    with monkeypatch.context() as then:
        then.setattr(LocalEmbedder, "documents", one_vector)
        then.setattr(writer, "stored_as", lambda *_: WHOLE_TEXTS)
        async with running(folder) as services:
            await services.rebuild.step()
            await added(services, CHAT + LAST, *(f"fact number {n} about tea" for n in range(12)))
            assert await kept(services) == [(1, WHOLE_TEXTS)] * 13
    return folder


async def test_vectors_of_other_chunks_serve_until_the_backfill_has_replaced_them(whole_texts: Path) -> None:
    async with running(whole_texts) as services:
        assert (await cosine(services, "Where is the spare key?") or 0) < 0.25
        texts: list[str] = []
        before = services.embedder.documents

        async def documents(asked: list[str]) -> list[TextEmbedding]:
            texts.extend(asked)
            return await before(asked)

        services.embedder.documents = documents  # type: ignore[method-assign]
        assert await services.vector_backfill.run() == 1
        assert len([said for said in texts if CHAT in said]) == 1
        assert len(texts) == 1 + 12, "the others are embedded for their tokens alone"
        assert (await cosine(services, "Where is the spare key?") or 0) > 0.35
        assert {chunking for _, chunking in await kept(services)} == {"128/64/238/32 tokens of 384"}
        assert await services.vector_backfill.run() == 0


async def test_an_index_that_is_lost_is_rebuilt_from_all_stored_chunks_without_embedding(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        await added(services, CHAT + LAST, "a fact about tea")
        entries = [entry.id async for page in services.index.entries() for entry in page]
        await services.index.delete(entries)
        done = await services.reconciler.sync(trigger="test")
        assert (done.memories_synced, done.embedded) == (2, 0)
        assert (await cosine(services, "Where is the spare key?") or 0) > 0.35


@pytest.mark.slow
async def test_kept_vectors_are_read_in_parts_that_fit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        await added(services, CHAT + LAST, *(f"{CHAT} {n}" for n in range(9)), *(f"fact {n}" for n in range(9)))
        monkeypatch.setattr(writer, "MAX_READ_BYTES", 20 * 1536)
        read = services.reconciler._repair._writer
        sizes: list[int] = []
        write = read.write

        async def watched(space: object, batch: writer.Batch) -> writer.Delivered:
            sizes.append(sum(len(point.vectors) for point in batch.points))
            return await write(space, batch)  # type: ignore[arg-type]

        monkeypatch.setattr(read, "write", watched)
        done = await services.reconciler.sync(trigger="test", full=True)
        assert (done.memories_synced, done.embedded) == (19, 0)
        assert len(sizes) > 3
        assert max(sizes) <= 20


async def test_vectors_of_another_dimension_are_never_taken_for_several(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        await added(services, "a fact about tea")
        async with services.database.transaction() as tx:
            await tx.execute(text("UPDATE embeddings SET vector = vector || vector, chunking = 'whatever of 768'"))
        done = await services.reconciler.sync(trigger="test", full=True)
        assert (done.memories_synced, done.embedded) == (1, 1)
        assert [chunks for chunks, _ in await kept(services)] == [1]


async def test_texts_are_chunked_again_a_few_at_a_time_and_not_while_something_waits(whole_texts: Path) -> None:
    async with running(whole_texts) as services:
        async with services.database.transaction() as tx:
            await tx.execute(text("INSERT INTO index_outbox (kind, id) VALUES ('memory', gen_random_uuid())"))
        assert await services.vector_backfill.run() == 0
        await services.outbox_delivery.drain()
        outcomes = await asyncio.gather(services.vector_backfill.run(), services.vector_backfill.run())
        assert sorted(outcomes) == [0, 1]
