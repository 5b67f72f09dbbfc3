"""What is particular to the embedded engine: its folder, damage, and death in the middle of a write."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from openmemory.index.collections import collection_name
from openmemory.index.engine.index import CHUNK, EdgeIndex
from openmemory.index.port import Filter, IndexUnavailable, Point, Vector

ALICE = UUID(int=1)
NAME = "memories__model__16__words-scope"
ROOT = Path(__file__).parents[3]

Build = Callable[..., Point]
Direction = Callable[..., Vector]


def index_in(folder: Path, *, model: str = "model", dimension: int = 16) -> EdgeIndex:
    return EdgeIndex(folder, collection=collection_name("memories", model, dimension), dimension=dimension)


async def filled(folder: Path, point: Build, number: int = 300) -> None:
    index = index_in(folder)
    await index.upsert([point(seed) for seed in range(number)])
    await index.close()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def aside(folder: Path) -> list[str]:
    return [name for name in names_in(folder) if ".broken-" in name]


async def test_the_folder_holds_the_collection_and_names_it_for_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "qdrant"
    index = index_in(folder)
    await index.open()
    assert names_in(folder) == ["current", NAME]
    assert (folder / "current").read_text() == f"{NAME}\n"
    assert folder.stat().st_mode & 0o077 == (folder / NAME).stat().st_mode & 0o077 == 0
    await index.close()


async def test_an_index_that_was_not_opened_opens_itself_once(tmp_path: Path, point: Build) -> None:
    index = index_in(tmp_path)
    await asyncio.gather(*(index.upsert([point(seed)]) for seed in range(8)))
    assert await index.count() == 8
    await index.close()


async def test_an_opening_that_failed_is_tried_again(tmp_path: Path, point: Build) -> None:
    (tmp_path / "qdrant").write_text("in the way")
    index = index_in(tmp_path / "qdrant")
    for _ in range(2):
        with pytest.raises(IndexUnavailable, match="File exists"):
            await index.count()
    (tmp_path / "qdrant").unlink()
    assert await index.count() == 0
    await index.close()


async def test_a_second_owner_is_refused_and_the_folder_stays_as_it_is(tmp_path: Path, point: Build) -> None:
    first, second = index_in(tmp_path), index_in(tmp_path)
    await first.upsert([point(1)])
    with pytest.raises(IndexUnavailable, match="in use by another process"):
        await second.open()
    assert aside(tmp_path) == []
    assert await first.count() == 1
    await first.close()
    assert await second.count() == 1
    await second.close()


async def test_more_points_than_one_chunk_are_all_written(tmp_path: Path, point: Build, direction: Direction) -> None:
    index = index_in(tmp_path)
    await index.upsert([point(seed) for seed in range(3 * CHUNK + 1)])
    assert await index.count() == 3 * CHUNK + 1
    assert (await index.search(direction(3 * CHUNK), Filter(ALICE), 1))[0].id == point(3 * CHUNK).id
    await index.close()


async def test_a_folder_of_another_dimension_is_neither_searched_nor_touched(tmp_path: Path, point: Build) -> None:
    await filled(tmp_path, point)
    other = tmp_path / "memories__model__8__words-scope"
    (tmp_path / NAME).rename(other)
    index = index_in(tmp_path, dimension=8)
    with pytest.raises(IndexUnavailable, match="does not hold vectors of 8 dimensions"):
        await index.open()
    assert aside(tmp_path) == []
    assert (other / "edge_config.json").exists()
    await index.close()


async def test_another_model_gets_a_folder_of_its_own_and_takes_over_when_told(tmp_path: Path, point: Build) -> None:
    await filled(tmp_path, point)
    index = index_in(tmp_path, model="better")
    assert await index.count() == 0
    assert (tmp_path / "current").read_text() == f"{NAME}\n"

    await index.activate()
    await index.activate()

    assert names_in(tmp_path) == ["current", "memories__better__16__words-scope", NAME]
    assert (tmp_path / "current").read_text() == "memories__better__16__words-scope\n"
    assert await index.count() == 0
    await index.close()


async def test_a_collection_that_was_replaced_can_be_dropped_and_the_one_in_use_cannot(
    tmp_path: Path, point: Build
) -> None:
    await filled(tmp_path, point)
    old, new = index_in(tmp_path), index_in(tmp_path, model="better")
    await new.activate()
    with pytest.raises(IndexUnavailable, match="in use"):
        await new.drop()
    await old.drop()
    assert names_in(tmp_path) == ["current", "memories__better__16__words-scope"]
    with pytest.raises(IndexUnavailable, match="closed"):
        await old.count()
    assert await new.count() == 0
    await new.close()


def _remove(pattern: str) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        [file] = home.glob(pattern)
        file.unlink()

    return damage


def _garble(pattern: str) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        [file] = home.glob(pattern)
        with file.open("r+b") as opened:
            opened.write(b"\xff" * 64)

    return damage


def _truncate(pattern: str) -> Callable[[Path], None]:
    def damage(home: Path) -> None:
        [file] = home.glob(pattern)
        os.truncate(file, 0)

    return damage


def _empty(home: Path) -> None:
    shutil.rmtree(home)
    home.mkdir()
    (home / "edge_config.json").touch()


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        _empty,
        _garble("edge_config.json"),
        _garble("segments/*/segment.json"),
        _garble("segments/*/payload_storage/config.json"),
        _remove("segments/*/payload_storage/tracker.dat"),
        # The ones below load, and would then answer searches with errors, or with nothing.
        _remove("segments/*/vector_storage/vectors/chunk_0.mmap"),
        _remove("segments/*/vector_storage/vectors/status.dat"),
        _remove("segments/*/vector_storage/quantized_data/status.dat"),
        _truncate("segments/*/payload_storage/page_0.dat"),
        _garble("segments/*/vector_storage/deleted/flags_a.dat"),
    ],
)
async def test_a_damaged_folder_is_moved_aside_and_an_empty_index_takes_its_place(
    tmp_path: Path,
    point: Build,
    direction: Direction,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await filled(tmp_path, point)
    damage(tmp_path / NAME)

    index = index_in(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert await index.count() == 0

    assert aside(tmp_path) == [f"{NAME}.broken-1"]
    assert "is damaged and will be rebuilt" in caplog.text
    await index.upsert([point(1)])
    assert [hit.id for hit in await index.search(direction(1), Filter(ALICE), 5)] == [point(1).id]
    await index.close()


@pytest.mark.slow
async def test_only_the_last_damaged_folders_are_kept(tmp_path: Path, point: Build) -> None:
    for _ in range(4):
        await filled(tmp_path, point, 1)
        _empty(tmp_path / NAME)
    index = index_in(tmp_path)
    await index.open()
    await index.close()
    assert aside(tmp_path) == [f"{NAME}.broken-3", f"{NAME}.broken-4"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("part", ["edge_config.json", "wal", "segments"])
async def test_a_folder_that_is_not_readable_is_not_mistaken_for_a_damaged_one(
    tmp_path: Path, point: Build, part: str
) -> None:
    await filled(tmp_path, point)
    closed = tmp_path / NAME / part
    mode = closed.stat().st_mode & 0o777
    closed.chmod(0)
    index = index_in(tmp_path)
    with pytest.raises(IndexUnavailable, match="cannot be opened"):
        await index.open()
    assert aside(tmp_path) == []
    closed.chmod(mode)
    assert await index.count() == 300
    await index.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from uuid import UUID
import numpy as np
from openmemory.index.engine.index import EdgeIndex
from openmemory.index.port import Point

async def main():
    index = EdgeIndex(Path(sys.argv[1]), collection="memories__model__16__words-scope", dimension=16)
    random = np.random.default_rng(0)
    for number in range(1, 10**6):
        await index.upsert([
            Point(id=UUID(int=number * 10 + i), vectors=random.standard_normal((1 + i % 3, 16)).astype(np.float32),
                  user=UUID(int=1), app=UUID(int=2), namespace="default", kind="memory", revision=number,
                  text_hash="hash")
            for i in range(10)
        ])
        if number % 20 == 0:
            await index.flush()
        print(number, flush=True)

asyncio.run(main())
"""


def write_until_killed(folder: Path, wanted: int) -> int:
    """Let a process write until it acknowledged `wanted` batches, kill it, and say how many it acknowledged."""
    acknowledged = 0
    command = [sys.executable, "-c", WRITER, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == wanted:
                writer.kill()
    assert writer.returncode < 0
    return acknowledged


@pytest.mark.slow
async def test_what_was_acknowledged_survives_kills_in_the_middle_of_writing(
    tmp_path: Path, direction: Direction
) -> None:
    most = 0
    for wanted in (37, 74, 111):
        most = max(most, await asyncio.to_thread(write_until_killed, tmp_path, wanted))

        index = index_in(tmp_path)
        entries = {entry.id.int: entry async for page in index.entries() for entry in page}
        assert {number * 10 + i for number in range(1, most + 1) for i in range(10)} <= entries.keys()
        assert all(entry.user == ALICE and entry.revision == id // 10 for id, entry in entries.items())
        hits = await index.search(direction(1), Filter(ALICE), len(entries) + 1)
        assert {hit.id.int for hit in hits} == entries.keys()
        assert names_in(tmp_path) == ["current", NAME]
        await index.close()


@pytest.mark.skipif(sys.platform != "linux", reason="there is /proc on Linux only")
async def test_a_flush_leaves_no_file_of_the_folder_resident_and_loses_nothing(
    tmp_path: Path, point: Build, direction: Direction, resident: Callable[[Path], int]
) -> None:
    index = index_in(tmp_path)
    await index.upsert([point(seed) for seed in range(300)])
    assert resident(tmp_path / NAME) > 0
    await index.flush()
    assert resident(tmp_path / NAME) == 0
    hits = await index.search(direction(7), Filter(ALICE), 1)
    assert [hit.id for hit in hits] == [point(7).id]
    await index.close()
