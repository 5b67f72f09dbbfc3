"""Fixtures for all tests: real services on a real embedded PostgreSQL, a real index and the real model."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from uuid import uuid4

import certifi
import hypothesis
import onnxruntime
import pytest
from sqlalchemy import text

from openmemory.config.sections import CategorySettings
from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.folders import new_folder
from tests.one_reading import Session

_numbers = count()

# Modules and tests stay to the end, so the garbage collector need not walk through them again and again.
gc.disable()

# Tests connect assistants in homes of their own; these variables would lead them into the files of whoever runs them.
for _name in (
    "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "COPILOT_HOME", "CONTINUE_GLOBAL_DIR", "CLINE_DIR",
    "CLINE_DATA_DIR", "GOOSE_PATH_ROOT", "VSCODE_PORTABLE", "FLATPAK_XDG_CONFIG_HOME",
):  # fmt: skip
    os.environ.pop(_name, None)

# A shell has what it runs in the background ignore Ctrl+C, and every program that tests start would do so too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The product takes the time zone of its machine. Tests are of UTC unless they say otherwise.
os.environ["TZ"] = "UTC"
time.tzset()

# How long an example takes depends on the other processes of the machine.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

_FIRST = {"backup", "embedded", "faults", "index", "journeys", "security"}
"""The folders of the files that take longest."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files come first, so that the others fill the workers' time to the end."""
    items.sort(key=lambda item: item.path.relative_to(Path(__file__).parent).parts[0] not in _FIRST)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def few_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every client of httpx reads all authorities of the web, 50 ms each time; no test speaks to the web."""
    first, end, _ = Path(certifi.where()).read_text(encoding="utf-8").partition("-----END CERTIFICATE-----\n")
    file = tmp_path_factory.mktemp("authorities") / "one.pem"
    file.write_text(first + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_reading() -> Iterator[None]:
    """The model reads each text once, but in its own tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", Session)
        yield


@contextmanager
def _folder() -> Iterator[Path]:
    folder = new_folder()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    """A folder for what all tests of a worker share."""
    with _folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def short_folder() -> Iterator[Path]:
    """A folder whose path is short enough for unix sockets, reachable by any account."""
    with _folder() as folder:
        yield folder


@pytest.fixture(scope="session")
async def services(session_folder: Path) -> AsyncIterator[Services]:
    """The whole product, shared by the tests of one worker; each test takes a `new_user` of its own."""
    # Tests of categories file when they want to; others would meet categories that they did not give.
    settings = Settings(
        data_dir=str(furnish(session_folder / "shared")), port=0, categories=CategorySettings(assign="off")
    )
    async with open_services(settings) as opened:
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


@pytest.fixture
async def in_bulk(services: Services, new_user: str) -> AsyncIterator[None]:
    """What the test adds for its user, or for one whose name begins with that, is not delivered and gone afterwards:
    embedding thousands of texts takes longer than the test, and others would wait for it."""
    await services.outbox_delivery.stop()
    yield
    async with services.database.long_transaction(100) as tx:
        for table in ("memories", "sources"):
            added = (
                f"DELETE FROM {table} AS t USING users AS u WHERE u.id = t.user_id AND starts_with(u.user_id, :user)"
            )
            await tx.execute(text(added), {"user": new_user})
    services.outbox_delivery.start()


@pytest.fixture(scope="session")
def eventually() -> Callable[..., Awaitable[None]]:
    """Wait until an async condition holds, or fail after `within` seconds.

    It is looked at more and more rarely, so that a user who searches is not refused for searching too often.
    """

    async def wait(condition: Callable[[], Awaitable[bool]], *, within: float = 60.0) -> None:
        deadline, pause = time.monotonic() + within, 0.02
        while not await condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            await asyncio.sleep(pause)
            pause = min(pause * 1.2, 0.3)

    return wait
