"""A service of its own whose language model is a script of the test."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import delete, text

from openmemory.capture.models import Capture
from openmemory.capture.schemas import CaptureCreate, Outcome
from openmemory.capture.status import WAITS, Status
from openmemory.config.settings import Settings
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.caller import Caller
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.doors.mcp.conftest import serving
from tests.living import living
from tests.llm.server import LlmServer, says

Say = Callable[..., Awaitable[Outcome]]
Done = Callable[..., Awaitable[None]]
TakeOver = Callable[[float], None]
SetPauses = Callable[..., None]


@pytest.fixture(scope="session")
def llm_server() -> Iterator[LlmServer]:
    made = LlmServer()
    yield made
    made.close()


@pytest.fixture
async def model(llm_server: LlmServer, inferring: Services, eventually: Any) -> AsyncIterator[LlmServer]:
    """The language model, which finds nothing to do unless the test says otherwise. No unfinished capture is left."""
    llm_server.script = lambda _: says({"operations": []})
    llm_server.asked.clear()
    llm_server.most_at_once = 0
    yield llm_server
    llm_server.script = lambda _: says({"operations": []})
    await _forget_unfinished(inferring)

    async def idle() -> bool:
        return not inferring.capturing._working

    await eventually(idle, within=30)
    inferring.capturing._away = inferring.capturing._away_until = 0.0


@retry_on_conflict
async def _forget_unfinished(services: Services) -> None:
    """The worker may hold locks on some of them, in another order."""
    async with services.database.transaction() as tx:
        await tx.execute(delete(Capture).where(Capture.status.in_(WAITS)))


@pytest.fixture(scope="session")
async def inferring(session_folder: Path, llm_server: LlmServer) -> AsyncIterator[Services]:
    """The product with a language model."""
    settings = Settings.model_validate(
        {
            # Another folder of tests that imports this fixture has one of its own.
            "data_dir": str(furnish(session_folder / f"capture-{uuid4().hex[:6]}")),
            "port": 0,
            "llm": {
                "provider": "openai", "model": "m", "api_key": "test-key-0123456789", "base_url": llm_server.url,
                "timeout": 20,
            },
            "rates": {"saves": 0, "searches": 0},
        }
    )  # fmt: skip
    async with living(open_services(settings)) as services:
        yield services


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
        once = None if key is None else IdempotentRequest.of(key, text, inferring.settings.limits)
        new = CaptureCreate(MemoryCreate(text=text, **more), wait=True, once=once)
        return await inferring.captures.add(caller, new)

    return capture


@pytest.fixture
async def remembered(inferring: Services, claude: Caller) -> Callable[..., Awaitable[Any]]:
    """Stores a text verbatim; returns its id."""

    async def add(text: str, *, caller: Caller = claude, **more: Any) -> Any:
        return (await inferring.memories.add(caller, MemoryCreate(text=text, **more))).id

    return add


@pytest.fixture
def pauses(inferring: Services, monkeypatch: pytest.MonkeyPatch) -> SetPauses:
    """Changes pauses of the worker for a test: `pauses(first=60)`."""

    def change(**seconds: float) -> None:
        changed = replace(inferring.capturing.pauses, **seconds)
        monkeypatch.setattr(inferring.capturing, "pauses", changed)

    return change


@pytest.fixture
def soon(pauses: SetPauses) -> None:
    """Pauses are short."""
    pauses(first=0.05, last=0.2, away=0.05, max_away=0.1, idle=0.1)


@pytest.fixture
def done(inferring: Services, claude: Caller, eventually: Any) -> Done:
    """Waits until a capture of the assistant's is done, or has another status: `await done(outcome, Status.FAILED)`."""

    async def wait(outcome: Outcome, status: Status = Status.DONE) -> None:
        async def is_so() -> bool:
            return (await inferring.captures.outcome(claude, outcome.capture_id)).status is status

        await eventually(is_so)

    return wait


@pytest.fixture
async def take_over(inferring: Services, claude: Caller) -> TakeOver:
    """What another process would do: it takes the assistant's captures over, under a lease of so many seconds. To be
    called by the language model, in its thread."""
    loop = asyncio.get_running_loop()

    async def steal(seconds: float) -> None:
        async with inferring.database.transaction() as tx:
            stolen = "UPDATE captures SET holder = :holder, due_at = now() + make_interval(secs => :seconds)"
            values = {"holder": uuid4(), "seconds": seconds, "user": claude.user_id}
            await tx.execute(text(f"{stolen} WHERE user_id = :user"), values)

    return lambda seconds: asyncio.run_coroutine_threadsafe(steal(seconds), loop).result(10)


@pytest.fixture(scope="module")
async def inferring_api(inferring: Services) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the product with a language model. Its jobs end with the file."""
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
    numbered = (line.split(". ", 1) for line in lines)
    return {json.JSONDecoder().raw_decode(rest)[0]: int(number) for number, rest in numbered}
