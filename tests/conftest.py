"""Fixtures for all tests: real services on a real embedded PostgreSQL, a real index and the real model."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from uuid import uuid4

import pytest

from app.access.caller import Caller
from app.config import Settings
from app.services import Services, open_services

_numbers = count()


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets, reachable by any account."""
    folder = Path(tempfile.mkdtemp(prefix="om-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
async def services(short_folder: Path) -> AsyncIterator[Services]:
    """The whole product, shared by the tests of one worker; each test takes a `new_user` of its own."""
    async with open_services(Settings(data_dir=str(short_folder / "shared"), port=0)) as opened:
        yield opened


@pytest.fixture
def new_user() -> str:
    """The name of a user that nobody else has."""
    return f"user-{next(_numbers)}-{uuid4().hex[:8]}"


@pytest.fixture
async def app_caller(services: Services, new_user: str) -> Caller:
    """A new user's assistant."""
    return await services.directory.caller(new_user, "claude")


@pytest.fixture
async def owner(services: Services, new_user: str) -> Caller:
    """A new user themself."""
    return await services.directory.caller(new_user, None, owner=True)


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Awaitable[None]]:
    """Wait until an async condition holds, or fail after `within` seconds."""

    async def wait(condition: Callable[[], Awaitable[bool]], *, within: float = 15.0) -> None:
        deadline = time.monotonic() + within
        while not await condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            await asyncio.sleep(0.02)

    return wait
