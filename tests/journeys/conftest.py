from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import furnish
from tests.journeys.service import Service, short_parent, starting


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder to be, for one test."""
    with short_parent() as parent:
        yield parent / "data"


@pytest.fixture(scope="module")
def served() -> Iterator[Service]:
    """A running service for the tests of one module."""
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        # On a busy machine the last of hundreds at once waits longer for a connection than it may by default.
        service = start(OPENMEMORY_DATABASE_CONNECT_TIMEOUT="60", OPENMEMORY_LIMITS_SESSIONS="300")
        service.ready()
        yield service


@pytest.fixture(scope="module")
def address(served: Service) -> str:
    """Where that service listens."""
    return served.ready()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A Git repository with a remote."""
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "remote", "add", "origin", "git@example.com:acme/shop.git"], cwd=tmp_path, check=True)
    (tmp_path / "src").mkdir()
    return tmp_path
