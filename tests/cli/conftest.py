"""Fixtures of the command line: real processes on real data folders."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from app.embedded.folder import running_service

Run = Callable[..., subprocess.CompletedProcess[str]]

_numbers = count()


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("OPENMEMORY_")}


def _run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app", *arguments],
        check=False,
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=90,
        env=_clean_environment() | environment,
    )


@pytest.fixture(scope="session")
def run() -> Run:
    """Runs a command to its end; keyword arguments are its environment, besides `stdin`."""
    return _run


def _new_folder() -> Path:
    parent = Path(tempfile.mkdtemp(prefix="om-"))
    parent.chmod(0o755)
    return parent / "data"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder to be: its path is short enough for unix sockets, and any account may pass through it."""
    path = _new_folder()
    yield path
    shutil.rmtree(path.parent)


@pytest.fixture(scope="session")
def served() -> Iterator[Path]:
    """A data folder on which a service runs, shared by the tests of one worker; each uses a `user` of its own."""
    path = _new_folder()
    service = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--data-dir", str(path), "--port", "0"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_clean_environment(),
    )
    try:
        deadline = time.monotonic() + 60
        while running_service(path) is None:
            assert service.poll() is None, "the service did not start"
            assert time.monotonic() < deadline, "the service did not start in time"
            time.sleep(0.05)
        yield path
    finally:
        service.terminate()
        service.wait(10)
        shutil.rmtree(path.parent)


@pytest.fixture
def om(served: Path) -> Run:
    """Runs a command against the service of `served`."""

    def run(*arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return _run(*arguments, stdin=stdin, OPENMEMORY_DATA_DIR=str(served), **environment)

    return run


@pytest.fixture
def user() -> str:
    """The name of a user that nobody else has."""
    return f"user-{next(_numbers)}-{uuid4().hex[:8]}"
