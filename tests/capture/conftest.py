"""A service of its own whose language model is a script of the test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.access.caller import Caller
from app.capture.schemas import CaptureCreate, Outcome
from app.config import Settings
from app.memories.schemas import MemoryCreate
from app.services import Services, open_services
from tests.clusters import furnish
from tests.llm.server import LlmServer, says
from tests.mcp.conftest import serving

Say = Callable[..., Awaitable[Outcome]]


@pytest.fixture(scope="session")
def llm_server() -> Iterator[LlmServer]:
    made = LlmServer()
    yield made
    made.close()


@pytest.fixture
def model(llm_server: LlmServer) -> Iterator[LlmServer]:
    """The language model, which finds nothing to do unless the test says otherwise."""
    llm_server.script = lambda _: says({"operations": []})
    llm_server.asked.clear()
    llm_server.most_at_once = 0
    yield llm_server
    llm_server.script = lambda _: says({"operations": []})


@pytest.fixture(scope="session")
async def inferring(short_folder: Path, llm_server: LlmServer) -> AsyncIterator[Services]:
    """The product with a language model."""
    settings = Settings.model_validate(
        {
            "data_dir": str(furnish(short_folder / "capture")),
            "port": 0,
            "llm": {
                "provider": "openai", "model": "m", "api_key": "test-key-0123456789", "base_url": llm_server.url,
                "timeout": 20,
            },
            "rates": {"saves": 0, "searches": 0},
        }
    )  # fmt: skip
    opened: asyncio.Future[Services] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        async with open_services(settings) as services:
            opened.set_result(services)
            await over.wait()

    # In a task of its own: pytest leaves a fixture in another task than it entered it in.
    living = asyncio.create_task(live())
    yield await asyncio.wait_for(opened, 60)
    over.set()
    await living


@pytest.fixture
async def claude(inferring: Services, new_user: str) -> Caller:
    """A new user's assistant."""
    return await inferring.directory.caller(new_user, "claude")


@pytest.fixture
async def self_(inferring: Services, claude: Caller) -> Caller:
    """The same user themself."""
    return await inferring.directory.caller(claude.user, None, owner=True)


@pytest.fixture
def say(inferring: Services, claude: Caller) -> Say:
    """Captures a text and waits for what becomes of it."""

    async def capture(text: str, *, caller: Caller = claude, key: str | None = None, **more: Any) -> Outcome:
        new = CaptureCreate(MemoryCreate(text=text, **more), wait=True, key=key)
        return await inferring.captures.add(caller, new)

    return capture


@pytest.fixture
async def remembered(inferring: Services, claude: Caller) -> Callable[..., Awaitable[Any]]:
    """Stores a text verbatim; returns its id."""

    async def add(text: str, *, caller: Caller = claude, **more: Any) -> Any:
        return (await inferring.memories.add(caller, MemoryCreate(text=text, **more))).id

    return add


@pytest.fixture(scope="session")
async def inferring_api(inferring: Services) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(inferring) as url, httpx.AsyncClient(base_url=url, timeout=60) as client:
        yield client


def operation(op: str, **more: Any) -> dict[str, Any]:
    """An operation as a model answers it."""
    empty = {"id": None, "text": None, "categories": [], "kind": None, "importance": None, "from": None, "until": None}
    return {"op": op, **empty, "reason": None, **more}


def does(*operations: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """A model that always answers these."""
    return lambda _: says({"operations": list(operations)})


def numbers(asked: dict[str, Any]) -> dict[str, int]:
    """The memories that a question shows, by their texts."""
    block = re.search(r"<memories-(\w+)>\n(.*)\n</memories-\1>", asked["messages"][-1]["content"], re.DOTALL)
    assert block is not None
    lines = [] if block[2] == "(none)" else block[2].splitlines()
    return {json.loads(line.partition(". ")[2]): int(line.partition(". ")[0]) for line in lines}
