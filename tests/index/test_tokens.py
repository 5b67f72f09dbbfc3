"""Tokens are kept with the vectors of a text, go with them, and are made where an older version made none."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import TextEmbedding
from openmemory.index import tokens
from openmemory.index.generations import backfill
from openmemory.index.models import ItemKind
from openmemory.index.tokens import VectorKey
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.services import Services
from tests.faults.embedding_server import EmbeddingServer
from tests.index.models import ann, running


async def kept(services: Services) -> dict[UUID, tuple[int, bool]]:
    """How many tokens each memory has, and whether they are those of its vectors' text."""
    rows = text(
        "SELECT t.id, length(t.tokens) / 48 AS count, t.text_hash = e.text_hash AS same"
        " FROM embedding_tokens AS t JOIN embeddings AS e USING (kind, id, model)"
    )
    async with services.database.statement() as tx:
        return {row.id: (row.count, row.same) for row in await tx.execute(rows)}


async def added(services: Services, *texts: str) -> list[UUID]:
    news = [MemoryCreate(text=said) for said in texts]
    ids = [one.id for one in await services.memories.add_many(await ann(services), news)]
    await services.outbox_delivery.drain()
    return ids


async def test_a_text_has_its_tokens_when_it_has_its_vector_and_they_go_with_it(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        tea, none, milk = await added(services, "tea without sugar", "3200 !", "milk")
        assert await kept(services) == {tea: (3, True), none: (0, True), milk: (1, True)}
        owner = await ann(services)
        await services.memories.update(owner, tea, MemoryUpdate(text="green tea with a little sugar and honey"))
        await services.outbox_delivery.drain()
        assert (await kept(services))[tea] == (5, True)
        await services.memories.erase(owner, [tea, none])
        assert await kept(services) == {milk: (1, True)}


async def test_the_vectors_of_another_text_leave_no_tokens_of_the_one_before(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        tea, milk = await added(services, "tea without sugar", "milk")
        async with services.database.transaction() as tx:
            # As an older version writes, which knows of no tokens.
            await tx.execute(text("UPDATE embeddings SET text_hash = 'another' WHERE id = :id"), {"id": tea})
            await tx.execute(text("UPDATE embeddings SET text_hash = text_hash WHERE id = :id"), {"id": milk})
        assert await kept(services) == {milk: (1, True)}


async def test_tokens_are_kept_only_of_the_text_whose_vectors_there_are(folder: Path) -> None:
    async with running(folder) as services:
        await services.rebuild.step()
        [tea] = await added(services, "tea without sugar")
        [made] = await services.embedder.documents(["something else"])
        async with services.database.transaction() as tx:
            others = [(tea, "another"), (UUID(int=7), "x")]
            stored = await tokens.keep(tx, ItemKind.MEMORY, services.embedder.model, others, [made.tokens] * 2)
        assert stored == 0
        assert await kept(services) == {tea: (3, True)}


TEXTS = [*(f"a fact about tea, number {n}" for n in range(40)), "...", "3200"]


@pytest.fixture
async def old_folder(folder: Path) -> Path:
    """A data folder whose vectors were kept before there were tokens."""
    async with running(folder) as services:
        await services.rebuild.step()
        await added(services, *TEXTS)
        async with services.database.transaction() as tx:
            await tx.execute(text("DELETE FROM embedding_tokens"))
    return folder


@pytest.mark.slow
async def test_what_an_older_version_kept_gets_its_tokens_a_few_at_a_time(
    old_folder: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(backfill, "TOGETHER", 8)
    asked: list[int] = []
    embed = LocalEmbedder.documents

    async def documents(self: LocalEmbedder, texts: list[str]) -> list[TextEmbedding]:
        if not {*texts} <= {*TEXTS}:  # on a busy machine, the model may be asked for another text too
            return await embed(self, texts)
        asked.append(len(texts))
        if len(asked) == 3:
            # Somebody adds something meanwhile, which goes first.
            async with services.database.transaction() as tx:
                await tx.execute(text("INSERT INTO index_outbox (kind, id) VALUES ('memory', gen_random_uuid())"))
        return await embed(self, texts)

    monkeypatch.setattr(LocalEmbedder, "documents", documents)
    async with running(old_folder) as services:
        assert await services.vector_backfill.run() == 0
        assert asked == [8, 8, 8]
        assert len(await kept(services)) == 24
    async with running(old_folder) as services:

        async def delivered() -> bool:
            # On a busy machine the index may not be open yet: then it is tried again in a moment.
            await services.outbox_delivery.drain()
            async with services.database.statement() as tx:
                return not await tx.scalar(text("SELECT count(*) FROM index_outbox"))

        await eventually(delivered)
        assert await services.vector_backfill.run() == 0
        assert asked == [8, 8, 8, 8, 8, 2]
        found = await kept(services)
        assert sorted(count for count, _ in found.values()) == [0, 0, *[4] * 40]
        assert all(same for _, same in found.values())
    async with running(old_folder) as services:
        # What has no token that counts is not looked at for ever.
        assert await services.vector_backfill.run() == 0
        assert len(asked) == 6


async def test_a_walk_meets_every_kept_vector_once(old_folder: Path) -> None:
    async with running(old_folder) as services, services.database.statement() as tx:
        model = services.embedder.model
        every = set(await tx.scalars(text("SELECT id FROM embeddings")))
        page = await tokens.page(tx, model, VectorKey())
        assert page is not None
        assert {key.id for key in page.lacking} == every
        assert await tokens.page(tx, model, page.last) is None
        other = await tokens.page(tx, "another model", VectorKey())
        assert other is not None
        assert (other.last, other.lacking) == (page.last, [])


async def test_a_model_of_a_provider_has_none(folder: Path, server: EmbeddingServer) -> None:
    async with running(folder, server) as services:
        await services.rebuild.step()
        await added(services, "tea without sugar")
        assert not services.embedder.tokenwise
        assert await services.vector_backfill.run() == 0
        assert await kept(services) == {}
