"""A disk that is nearly full: writes are refused before the engine would be killed by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from openmemory.index.collections import collection_name
from openmemory.index.engine import disk_space
from openmemory.index.engine.index import EdgeIndex
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.index.port import Filter, IndexUnavailable, Point, Vector
from tests.faults.disks import disk
from tests.index.serving import served

ALICE = UUID(int=1)

Build = Callable[..., Point]


def index_in(folder: Path) -> EdgeIndex:
    return EdgeIndex(folder, collection=collection_name("memories", "model", 16), dimension=16)


async def test_writes_wait_until_there_is_room_again_and_searches_go_on(
    tmp_path: Path, point: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_in(tmp_path)
    await index.upsert([point(1), point(2)])
    with monkeypatch.context() as patched:
        patched.setattr(disk_space, "RESERVE", 2**60)
        for write in (index.upsert([point(3)]), index.delete([point(1).id])):
            with pytest.raises(IndexUnavailable, match=r"No space left on device: \d+ MB are free in .*, and \d+ MB"):
                await write
        assert len(await index.search(point(1).vectors[0], Filter(ALICE), 5)) == await index.count() == 2
        await index.flush()
        await index.close()
        index = index_in(tmp_path)
        with pytest.raises(IndexUnavailable, match="No space left"):
            await index.open()
    await index.upsert([point(3)])
    assert await index.count() == 3
    await index.close()


async def test_a_large_write_needs_more_room_than_a_small_one(
    tmp_path: Path, point: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = index_in(tmp_path)
    await index.open()
    monkeypatch.setattr(disk_space, "COPIES", 10**12)
    await index.delete([point(1).id])
    with pytest.raises(IndexUnavailable, match="No space left"):
        await index.upsert([point(1, text="x" * 10_000_000)])
    await index.close()


async def test_the_front_says_it_in_the_words_of_qdrant(
    tmp_path: Path, direction: Callable[..., Vector], monkeypatch: pytest.MonkeyPatch
) -> None:
    vector = direction(1).tolist()
    async with served(QdrantRestApi(tmp_path)) as url, httpx.AsyncClient(base_url=f"{url}/collections/c") as front:
        await front.put("", json={"vectors": {"size": 16, "distance": "Cosine"}})
        await front.put("/points", json={"points": [{"id": 1, "vector": vector}]})
        monkeypatch.setattr(disk_space, "RESERVE", 2**60)
        answer = await front.put("/points", json={"points": [{"id": 2, "vector": vector}]})
        assert answer.status_code == 500
        assert "Service internal error: No space left on device" in answer.json()["status"]["error"]
        assert len((await front.post("/points/query", json={"query": vector})).json()["result"]["points"]) == 1


@pytest.mark.slow
async def test_a_disk_that_fills_up_while_we_write_never_kills_us(tmp_path: Path, point: Build) -> None:
    with disk(tmp_path / "disk", megabytes=84) as small:
        index = index_in(small.folder / "qdrant")
        written = 0
        refused = ""
        while not refused and written < 200_000:
            try:
                await index.upsert([point(seed, text="word " * 200) for seed in range(written, written + 250)])
                written += 250
            except IndexUnavailable as error:
                refused = str(error)
        assert "No space left" in refused
        assert written > 0
        small.fill()
        outcomes = await asyncio.gather(
            *(index.upsert([point(seed)]) for seed in range(20)),
            *(index.delete([point(seed).id]) for seed in range(20)),
            return_exceptions=True,
        )
        assert all(isinstance(outcome, IndexUnavailable) for outcome in outcomes)
        assert len(await index.search(point(1).vectors[0], Filter(ALICE), 10)) == 10
        await index.close()  # Flushing would need room; what it would have written is in the log.
        index = index_in(small.folder / "qdrant")
        with pytest.raises(IndexUnavailable, match="No space left"):
            await index.open()
        small.empty()
        small.grow(megabytes=300)
        index = index_in(small.folder / "qdrant")
        assert await index.count() == written
        await index.upsert([point(200_000)])
        await index.close()
