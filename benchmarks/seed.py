"""Fills a data folder with memories of twenty users, without embedding them: their vectors, and those of their tokens,
are random."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.database.engine import Tx
from openmemory.embeddings.chunks import stored_as
from openmemory.embeddings.local import TOKENIZER
from openmemory.embeddings.port import CODE, Codes
from openmemory.identity.caller import Caller
from openmemory.index import tokens
from openmemory.index.models import ItemKind
from openmemory.memories.schemas import MemoryCreate
from openmemory.search import statistics
from openmemory.services import Services, open_services

USER = "bench-user"
OTHERS = 19
BATCH = 1_000


def _words() -> list[str]:
    """English words: those that the packaged model's vocabulary holds whole, shuffled."""
    vocabulary = json.loads(TOKENIZER.verified().read_text())["model"]["vocab"]
    words = sorted(word for word in vocabulary if word.isascii() and word.isalpha() and len(word) >= 4)
    random.Random(1).shuffle(words)
    return words[:8_000]


WORDS = _words()
# Summed up once: choosing by plain weights would sum them for every text, which costs a client half a search's share.
_WEIGHTS = list(accumulate(1 / (rank + 10) for rank in range(len(WORDS))))

_VECTORS = text(
    """
    INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
    SELECT :kind, e.id, :model, e.hash, e.vector, :chunking
    FROM unnest(CAST(:ids AS uuid[]), CAST(:hashes AS text[]), CAST(:vectors AS bytea[])) AS e(id, hash, vector)
    """
)


def texts(seed: int, words: tuple[int, int] = (8, 24)) -> Iterator[str]:
    """Endless unique texts whose words follow Zipf's law."""
    chance = random.Random(seed)
    number = 0
    while True:
        number += 1
        yield " ".join(chance.choices(WORDS, cum_weights=_WEIGHTS, k=chance.randint(*words))) + f" {seed}x{number}"


def questions(seed: int) -> Iterator[str]:
    """Endless unique queries of five to ten words."""
    chance = random.Random(seed)
    while True:
        yield "what about " + " ".join(chance.choices(WORDS, cum_weights=_WEIGHTS, k=chance.randint(3, 8)))


Fields = Callable[[int], dict[str, Any]]
"""What the memory of a number has besides its text."""


def plain(_: int) -> dict[str, Any]:
    """Nothing but the text."""
    return {}


async def grow(folder: Path, size: int, fields: Fields = plain) -> None:
    """Bring the user to `size` memories with those `fields`, and the nineteen others together to as many."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        await services.outbox_delivery.stop()
        await _fill(services, await services.directory.caller(USER, "bench", owner=True), size, 0, fields)
        for other in range(OTHERS):
            caller = await services.directory.caller(f"bench-other-{other}", "bench")
            await _fill(services, caller, size // OTHERS, 1 + other)
        await settle(services)


async def settle(services: Services) -> None:
    """Do what a service does in the background after many writes."""
    await services.outbox_delivery.drain()
    async with services.database.statement() as tx:
        await tx.execute(text("VACUUM ANALYZE"))
        for user in await statistics.stale_users(tx):
            await statistics.refresh(tx, user)
    await services.reconciler.sync(trigger="benchmark")
    await services.comparison.run()


async def _fill(services: Services, caller: Caller, size: int, seed: int, fields: Fields = plain) -> None:
    source = texts(seed * 1_000_003 + size)
    generator = np.random.default_rng(seed)
    async with services.database.statement() as tx:
        have = await tx.scalar(text("SELECT count(*) FROM memories WHERE user_id = :user"), {"user": caller.user_id})
    for at in range(have or 0, size, BATCH):
        news = [MemoryCreate(text=next(source), **fields(n)) for n in range(at, min(at + BATCH, size))]
        added = await services.memories.add_many(caller, news)
        async with services.database.transaction() as tx:
            hashes = await tx.execute(
                text("SELECT id, hash, content FROM memories WHERE id = ANY(:ids)"), {"ids": [one.id for one in added]}
            )
            rows = hashes.all()
            await keep_vectors(tx, services, ItemKind.MEMORY, [(row.id, row.hash) for row in rows], generator)
            if services.embedder.tokenwise:
                hashed = [(row.id, row.hash) for row in rows]
                # Every word is a token; the number at the end has a digit.
                drawn = [_tokens(generator, row.content.count(" ")) for row in rows]
                await tokens.keep(tx, ItemKind.MEMORY, services.embedder.model, hashed, drawn)


async def keep_vectors(
    tx: Tx, services: Services, kind: ItemKind, items: Sequence[tuple[UUID, str]], generator: np.random.Generator
) -> None:
    """Store a random vector for each of these items, given by id and hash."""
    vectors = generator.standard_normal((len(items), 384)).astype("<f4")
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    values = {
        "kind": kind.value,
        "model": services.embedder.model,
        "chunking": stored_as(services.embedder.chunking, 384),
        "ids": [id_ for id_, _ in items],
        "hashes": [hash_ for _, hash_ in items],
        "vectors": [vector.tobytes() for vector in vectors],
    }
    await tx.execute(_VECTORS, values)


def _tokens(generator: np.random.Generator, count: int) -> Codes:
    """Random tokens as texts have them."""
    return generator.integers(0, 256, (count, CODE), dtype=np.uint8)


def seed(folder: Path, size: int, fields: Fields = plain) -> None:
    """`grow`, for a program that has no event loop."""
    asyncio.run(grow(folder, size, fields))
