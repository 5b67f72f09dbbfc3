"""What keeping the vector index in step costs, and what searches and writes feel of it.

    python -m benchmarks.sync [--size 100000] [--folder DIR]

A data folder is filled with that many memories of twenty users (or `--folder` names one that `benchmarks.seed` filled;
it is copied, not touched). Every ratio is of two measurements of this run, taken in turns where they are short.
The vectors are random but for those of the texts that change: embedding 100,000 texts would take longer than measuring.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import psutil
import qdrant_edge
from sqlalchemy import text

from benchmarks.outage import outage
from benchmarks.seed import USER, questions, seed, texts
from benchmarks.service import temporary_folder
from openmemory.config.settings import Settings
from openmemory.doors.server.processes import settle
from openmemory.index.collections import payload_of
from openmemory.index.engine.calls import CHUNK, buffer
from openmemory.index.engine.index import EdgeIndex
from openmemory.index.models import ItemKind
from openmemory.index.port import Point
from openmemory.index.sync.repair import Repair
from openmemory.index.sync.writer import IndexWriter
from openmemory.search.schemas import SearchQuery
from openmemory.services import INDEXED_TABLES, Services, open_services
from openmemory.stores import INDEX_FOLDER

RUNS = 5


async def main(folder: Path, size: int) -> None:
    """Everything that needs the stores in this process."""
    async with opened(folder) as services:
        await services.reconciler.sync(trigger="benchmark")
        settle()
        await unchanged(services)
        await changed(services)
        points = await _all_points(services)
    await rebuilt(folder, points)
    async with opened(folder) as services:
        await wiped(services)
        await upstream(services, size)


@contextlib.asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Services]:
    """The service's parts, with nothing going on by itself."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        await services.outbox_delivery.stop()
        await services.warm()
        yield services


async def unchanged(services: Services) -> None:
    """A sync with nothing to do, in turns with reading the ids of both stores."""
    times: dict[str, list[float]] = {"sync": [], "ids": [], "ids and revisions": []}
    for _ in range(RUNS):
        started = time.perf_counter()
        done = await services.reconciler.sync(trigger="benchmark")
        times["sync"].append(time.perf_counter() - started)
        assert (done.memories_synced, done.deleted, done.embedded) == (0, 0, 0)
        for what, columns, payload in (("ids", "id", False), ("ids and revisions", "id, user_id, revision", True)):
            started = time.perf_counter()
            await _read_postgres(services, columns)
            await asyncio.to_thread(_read_index, services, payload)
            times[what].append(time.perf_counter() - started)
    medians = {what: statistics.median(found) for what, found in times.items()}
    print(f"nothing changed among {done.total_memories}: sync {medians['sync']:.2f} s, 0 embeddings, 0 writes")
    for what in ("ids", "ids and revisions"):
        print(f"  reading the {what} of both: {medians[what]:.2f} s; sync / that {medians['sync'] / medians[what]:.2f}")


async def _read_postgres(services: Services, columns: str) -> None:
    after = UUID(int=0)
    query = f"SELECT {columns} FROM memories WHERE state = 'active' AND id > %s ORDER BY id LIMIT 2000"
    async with services.database.statement() as tx:
        driver = (await tx.get_raw_connection()).driver_connection
        while rows := await (await driver.execute(query, [after], prepare=True)).fetchall():
            after = rows[-1][0]


def _read_index(services: Services, payload: bool) -> None:
    after = None
    shard = _shard(services)
    while True:
        request = qdrant_edge.ScrollRequest(
            offset=after, limit=2000, with_payload=["owner", "revision"] if payload else False, with_vector=False
        )
        records, after = shard.scroll(request)
        _ = [(record.id, record.payload) for record in records] if payload else [record.id for record in records]
        if after is None:
            return


def _shard(services: Services) -> qdrant_edge.EdgeShard:
    return services.index._index._shard.engine  # type: ignore[attr-defined]


async def changed(services: Services, count: int = 1_000) -> None:
    """A sync after as many texts changed and their marks were lost, against writing those alone."""
    source = texts(77)
    times: dict[str, list[float]] = {"alone": [], "sync": [], "alone, vectors kept": [], "sync, vectors kept": []}
    repair = Repair(
        services.database,
        IndexWriter(services.database, INDEXED_TABLES),
        services.outbox_delivery,
    )
    for _ in range(RUNS):
        for how, measured in times.items():
            async with services.database.transaction() as tx:
                ids = list(await tx.scalars(text("SELECT id FROM memories ORDER BY random() LIMIT :n"), {"n": count}))
                if "kept" in how:
                    await services.index.delete(ids)
                else:
                    news = [next(source) for _ in ids]
                    await tx.execute(_CHANGE, {"ids": ids, "texts": news})
            started = time.perf_counter()
            if how.startswith("alone"):
                async for loaded in repair.prepare(services.spaces.serving, ItemKind.MEMORY, ids):
                    await repair.put(services.spaces.serving, loaded)
                    await repair.verify(loaded)
            else:
                done = await services.reconciler.sync(trigger="benchmark")
                assert done.memories_synced == count, done
                assert done.embedded == (0 if "kept" in how else count), done
            measured.append(time.perf_counter() - started)
    medians = {how: statistics.median(found) for how, found in times.items()}
    print(f"{count} changed: sync {medians['sync']:.2f} s; those alone {medians['alone']:.2f} s; ratio ", end="")
    print(f"{medians['sync'] / medians['alone']:.2f}")
    print(
        f"{count} lost, vectors kept: sync {medians['sync, vectors kept']:.2f} s; those alone "
        f"{medians['alone, vectors kept']:.2f} s"
    )


_CHANGE = text(
    """
    UPDATE memories AS m SET content = new.text, hash = md5(new.text), revision = revision + 1
    FROM unnest(CAST(:ids AS uuid[]), CAST(:texts AS text[])) AS new(id, text) WHERE m.id = new.id
    """
)


async def rebuilt(folder: Path, points: list[Point]) -> None:
    """An index whose folder is gone, in turns with writing the same points, made beforehand, to the engine alone.

    Both end flushed, and both are given what the engine took until it had the points but was not flushed yet.
    """
    rates: dict[str, list[float]] = {"raw": [], "raw, not flushed": [], "rebuild": []}
    growth = []
    settle()
    await asyncio.to_thread(_raw, folder.parent / "raw", points[: 10 * CHUNK])  # loads what is loaded once
    for _ in range(RUNS):
        unflushed, flushed = await asyncio.to_thread(_raw, folder.parent / "raw", points)
        rates["raw, not flushed"].append(len(points) / unflushed)
        rates["raw"].append(len(points) / flushed)
        shutil.rmtree(folder / INDEX_FOLDER)
        async with opened(folder) as services:
            with _peak() as memory:
                started = time.perf_counter()
                done = await services.reconciler.sync(trigger="benchmark")
                rates["rebuild"].append(done.memories_synced / (time.perf_counter() - started))
            assert (done.memories_synced, done.embedded, done.errors) == (len(points), 0, 0), done
            growth.append(memory())
    raw, unflushed, rebuild = (statistics.median(rates[what]) for what in ("raw", "raw, not flushed", "rebuild"))
    print(
        f"rebuild of {len(points)}: {rebuild:.0f}/s, 0 embeddings; the engine alone {raw:.0f}/s, {unflushed:.0f}/s "
        f"before its flush; share {rebuild / raw:.2f}, {rebuild / unflushed:.2f}; RSS grew by at most "
        f"{max(growth) / 1e6:.0f} MB, the index itself included"
    )


async def _all_points(services: Services) -> list[Point]:
    found: list[Point] = []
    writer = IndexWriter(services.database, INDEXED_TABLES)
    async for page in services.index.entries():
        batch = await writer.read(ItemKind.MEMORY, [entry.id for entry in page])
        async for part in writer.filled(services.spaces.serving, batch):
            found += part.points
    return found


def _raw(folder: Path, points: list[Point]) -> tuple[float, float]:
    """Seconds that the engine takes for the points in batches as large as ours, and until they are flushed."""
    index = EdgeIndex(folder, collection="raw", dimension=384)
    asyncio.run(index.open())
    try:
        started = time.perf_counter()
        for start in range(0, len(points), CHUNK):
            index._shard.engine.update(
                qdrant_edge.UpdateOperation.upsert_points(
                    [
                        qdrant_edge.Point(point.id, buffer(point.vectors[0]), payload_of(point))
                        for point in points[start : start + CHUNK]
                    ]
                )
            )
        written = time.perf_counter()
        index._shard.flush()
        return written - started, time.perf_counter() - started
    finally:
        asyncio.run(index.close())
        shutil.rmtree(folder)


async def _wipe(services: Services) -> None:
    ids = [entry.id async for page in services.index.entries() for entry in page]
    for start in range(0, len(ids), 10_000):
        await services.index.delete(ids[start : start + 10_000])
    assert await services.index.count() == 0


@contextlib.contextmanager
def _peak() -> Iterator[object]:
    """A function that tells by how many bytes this process grew at most while the block ran."""
    me = psutil.Process()
    before = peak = me.memory_info().rss
    over = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not over.wait(0.02):
            peak = max(peak, me.memory_info().rss)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield lambda: peak - before
    finally:
        over.set()
        watching.join()


async def wiped(services: Services) -> None:
    """Searches while the index is emptied and filled again."""
    caller = await services.directory.caller(USER, None, owner=True)
    source = questions(5)
    asked = [next(source) for _ in range(200)]
    for query in asked:
        assert (await services.search.search(caller, SearchQuery(query))).results
    over = asyncio.Event()
    counts = {"searches": 0, "failed": 0, "empty": 0}

    async def searching() -> None:
        while not over.is_set():
            for query in asked:
                counts["searches"] += 1
                try:
                    answer = await services.search.search(caller, SearchQuery(query))
                    counts["empty"] += not answer.results
                except Exception as error:
                    print(f"  {type(error).__name__}: {error}")
                    counts["failed"] += 1
                if over.is_set():
                    break

    searcher = asyncio.create_task(searching())
    await _wipe(services)
    done = await services.reconciler.sync(trigger="benchmark")
    over.set()
    await searcher
    print(
        f"wiped and rebuilt in {done.seconds:.1f} s under searches: {counts['searches']} searches, "
        f"{counts['failed']} failed, {counts['empty']} empty"
    )


async def upstream(services: Services, size: int) -> None:
    """What clearing the collection and embedding everything again costs."""
    source = texts(99)
    news = [next(source) for _ in range(1_000)]
    started = time.perf_counter()
    await services.embedder.documents(news)
    rate = len(news) / (time.perf_counter() - started)
    print(f"embedding: {rate:.0f} texts/s, so that embedding all {size} again would take {size / rate:.0f} s each time")


def filled(folder: Path, size: int, given: Path | None) -> Path:
    """A data folder with memories: a copy of the given one, or a new one."""
    if given is None:
        seed(folder, size // 2)  # the nineteen other users hold as many together
    else:
        subprocess.run(["cp", "-a", str(given), str(folder)], check=True)
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with temporary_folder("sync") as parent:
        data = filled(parent / "data", arguments.size, arguments.folder)
        asyncio.run(outage(data))
        asyncio.run(main(data, arguments.size))
