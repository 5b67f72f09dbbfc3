"""Fixtures of the command line: real processes on real data folders."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from tests import warm
from tests.clusters import furnish
from tests.journeys.service import short_parent, starting

Run = Callable[..., subprocess.CompletedProcess[str]]

_numbers = count()


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command to its end; keyword arguments are its environment, besides `stdin`."""
    return warm.run


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder to be: its path is short enough for unix sockets, and any account may pass through it."""
    with short_parent() as parent:
        yield parent / "data"


@pytest.fixture(scope="session")
def served() -> Iterator[Path]:
    """A data folder on which a service runs, shared by the tests of one worker; each uses a `user` of its own."""
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        start(OPENMEMORY_CATEGORIES_ASSIGN="local").ready()
        yield parent / "data"


@pytest.fixture
def om(served: Path) -> Run:
    """Runs a command against the service of `served`."""

    def run(
        *arguments: str, stdin: str | None = None, cwd: Path | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return warm.run(*arguments, stdin=stdin, cwd=cwd, OPENMEMORY_DATA_DIR=str(served), **environment)

    return run


@pytest.fixture
def user() -> str:
    """The name of a user that nobody else has."""
    return f"user-{next(_numbers)}-{uuid4().hex[:8]}"
