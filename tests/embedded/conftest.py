"""Data folders that PostgreSQL's unprivileged account can reach, and processes that own one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

import openmemory
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.embedded.processes import servers_of
from tests.folders import new_folder


def passable_folder() -> Path:
    """A new folder that every account may pass through; pytest's own are closed to `nobody`."""
    path = new_folder("openmemory-test-")
    path.chmod(0o711)
    return path


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty passable folder; nothing of it may run after the test."""
    path = passable_folder()
    yield path
    left = [process.pid for process in psutil.process_iter() if str(path) in " ".join(_command(process))]
    shutil.rmtree(path)
    assert not left, f"processes left behind: {left}"


@pytest.fixture
def folder(place: Path) -> Iterator[DataFolder]:
    owned = DataFolder.claim(place / "data", listen="http://127.0.0.1:8765")
    yield owned
    owned.release()


@pytest.fixture(scope="session")
async def cluster() -> AsyncIterator[Path]:
    """The files of a database after its first start, to begin from a second one."""
    path = passable_folder()
    owned = DataFolder.claim(path, listen="")
    server = EmbeddedPostgres(owned)
    await server.start()
    await server.stop()
    yield server.data
    owned.release()
    shutil.rmtree(path)


@pytest.fixture
def furnished(folder: DataFolder, cluster: Path) -> DataFolder:
    """A data folder that holds a database, as a former start left it."""
    data = folder.path / "postgres"
    shutil.copytree(cluster, data)
    for path in (data, *data.rglob("*")):
        os.chown(path, cluster.stat().st_uid, cluster.stat().st_gid)
    return folder


@pytest.fixture
async def postgres(furnished: DataFolder) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(furnished)
    await server.start()
    yield server
    await server.stop()
    assert servers_of(server.data) == []


@pytest.fixture
def run_python() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python code in a process of its own; whatever still runs is killed afterwards."""
    started: list[subprocess.Popen[str]] = []

    def run(code: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(openmemory.__file__).parents[1])},
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait for the condition; fail when it has not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.01)


@pytest.fixture(name="until")
def until_fixture() -> Callable[..., object]:
    return until


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
