"""`openmemory serve --workers N`: several processes that serve, one that owns, and what each death leads to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from mcp import Client
from mcp.client.sse import sse_client

from tests.clusters import furnish
from tests.doors.mcp.streams import Stream, stream_of, tool
from tests.journeys.service import START, Service, short_parent, starting, until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(240)]

WORKERS = 3
FEWER = 2
"""As many where it is enough that there are several: each is a start of its own."""
SESSIONS = 30
_STOP = 5.0


@pytest.fixture
def serve(folder: Path) -> Iterator[Callable[..., Service]]:
    """Starts services of two workers on the folder; ends them after the test."""
    with starting(furnish(folder), "--workers", str(FEWER)) as start:
        yield start


Serve = Callable[..., Service]


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    """A service of three workers for the tests that leave it as it was."""
    with short_parent() as parent, starting(furnish(parent / "data"), "--workers", str(WORKERS)) as start:
        service = start()
        service.ready()
        yield service


def workers(service: Service) -> list[psutil.Process]:
    """The processes that serve."""
    return [
        child
        for child in psutil.Process(service.process.pid).children()
        if "openmemory.doors.server.worker" in child.cmdline()
    ]


def memories(url: str, user: str) -> list[str]:
    answer = httpx.get(f"{url}/api/v1/memories", params={"user_id": user, "size": 100}).raise_for_status()
    return sorted(item["content"] for item in answer.json()["items"])


async def text_of(client: Client, name: str, **arguments: Any) -> Any:
    """The answer of a tool. A call is made again if the database does not answer for a moment."""
    while True:
        result = await client.call_tool(name, arguments)
        [content] = result.content
        if not (result.is_error and "The database does not answer" in content.text):  # type: ignore[union-attr]
            break
        await asyncio.sleep(0.5)
    assert not result.is_error, content
    return json.loads(content.text)  # type: ignore[union-attr]


@pytest.mark.slow
async def test_many_sessions_lose_no_message_though_each_request_may_reach_another_worker(
    shared: Service, new_user: str
) -> None:
    service = shared
    url = service.ready()
    assert service.out.count("is ready") == 1
    assert f"{WORKERS} workers" in service.out
    assert len(workers(service)) == WORKERS

    async def assistant(number: int) -> None:
        user = f"{new_user}-{number}"
        async with Client(sse_client(f"{url}/mcp/claude/sse/{user}", timeout=60), mode="legacy") as client:
            for fact in range(4):
                await text_of(client, "add_memories", text=f"Fact {fact} of assistant {number}")
            listed = await text_of(client, "list_memories")
            assert {item["user_id"] for item in listed} == {user}
            assert len(listed) == 4

    async with asyncio.timeout(200), asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            group.create_task(assistant(number))
    async with Client(f"{url}/mcp/claude/http/{new_user}-0") as client:
        found = await text_of(client, "search_memory", query="Fact 3 of assistant 0")
        assert found["results"][0]["memory"] == "Fact 3 of assistant 0"
    assert "Traceback" not in service.err


@asynccontextmanager
async def sessions(url: str, user: str, count: int) -> AsyncIterator[list[tuple[Stream, int, httpx.AsyncClient]]]:
    """Open sessions, each with the local port of the connection that its stream uses and a client for its messages."""
    async with AsyncExitStack() as stack:
        opened = []
        for number in range(count):
            client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=30))
            stream = await stack.enter_async_context(stream_of(client, f"/mcp/claude/sse/{user}-{number}"))
            port = stream.response.extensions["network_stream"].get_extra_info("client_addr")[1]
            await stream.shake_hands()
            opened.append((stream, port, client))
        yield opened


@pytest.mark.slow
async def test_a_killed_worker_takes_only_its_own_sessions_with_it_and_is_replaced(
    shared: Service, new_user: str
) -> None:
    service = shared
    url = service.ready()
    async with sessions(url, new_user, 12) as opened:
        ports = {
            worker.pid: {one.raddr.port for one in worker.net_connections("tcp") if one.raddr}
            for worker in workers(service)
        }
        held = {pid: [one for one in opened if one[1] in found] for pid, found in ports.items()}
        assert sum(map(len, held.values())) == len(opened)
        victim = max(held, key=lambda pid: len(held[pid]))
        os.kill(victim, signal.SIGKILL)
        for stream, _, _ in held[victim]:
            with pytest.raises((httpx.TransportError, AssertionError)):
                await stream.event()
        async with httpx.AsyncClient(base_url=url, timeout=30) as fresh:
            message = {"jsonrpc": "2.0"} | tool("list_memories")
            asked = (fresh.post(stream.messages, json=message) for stream, _, _ in held[victim])
            for answer in await asyncio.gather(*asked):
                # Not found as soon as the others are sure that it died.
                told = (answer.status_code, answer.json()["error"])
                assert told in {(404, "session_not_found"), (503, "relay_busy")}
        for pid, those in held.items():
            for stream, _, _ in those if pid != victim else ():
                listed = await stream.answer(tool("list_memories"))
                assert json.loads(listed["result"]["content"][0]["text"]) == []
        until(lambda: "is running again" in service.err, START)
        assert victim not in {worker.pid for worker in workers(service)}
        assert len(workers(service)) == WORKERS
        for _ in range(20):
            async with httpx.AsyncClient(base_url=url, timeout=30) as fresh:
                assert (await fresh.get("/health/ready")).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("to_group", [True, False], ids=["group", "process"])
def test_a_signal_ends_every_process_though_event_streams_are_open(serve: Serve, folder: Path, to_group: bool) -> None:
    service = serve()
    url = service.ready()
    family = service.family()
    assert len(workers(service)) == FEWER
    with httpx.stream("GET", f"{url}/mcp/sse", timeout=30) as one, httpx.stream("GET", f"{url}/mcp/sse") as two:
        assert (one.status_code, two.status_code) == (200, 200)
        if to_group:
            os.killpg(service.process.pid, signal.SIGINT)
        else:
            service.process.send_signal(signal.SIGTERM)
        assert service.ended(within=_STOP) == 0, service.err
    # A parent that ran out of patience leaves the last steps to the processes themselves, which see that it is gone.
    assert psutil.wait_procs(family, 10)[1] == []
    assert "Traceback" not in service.err
    assert not (folder / "service.json").exists()
    assert not (folder / "run-index").exists()


@pytest.mark.slow
def test_a_worker_that_does_not_obey_is_killed_within_the_deadline_and_no_secret_was_its_argument(serve: Serve) -> None:
    service = serve(OPENMEMORY_ACCESS_API_KEY="Vd7-kq2Xw9-pLr4mZt8n")
    url = service.ready()
    assert all("Vd7-kq2Xw9-pLr4mZt8n" not in " ".join(worker.cmdline()) for worker in workers(service))
    assert httpx.get(f"{url}/api/v1/memories", params={"user_id": "x"}).status_code == 401
    family = service.family()
    workers(service)[0].send_signal(signal.SIGSTOP)
    service.process.send_signal(signal.SIGTERM)
    assert service.ended(within=_STOP + 1) == 0, service.err
    # A parent that ran out of patience leaves the last steps to the processes themselves, which see that it is gone.
    assert psutil.wait_procs(family, 10)[1] == []


@pytest.mark.slow
def test_nothing_is_left_of_a_parent_that_was_killed_and_nothing_is_lost(
    serve: Serve, folder: Path, new_user: str
) -> None:
    service = serve()
    url = service.ready()
    family = service.family()
    texts = [f"Fact {number}" for number in range(20)]
    for each in texts:
        added = httpx.post(f"{url}/api/v1/memories", json={"user_id": new_user, "text": each, "infer": False})
        assert added.is_success, added.text
    service.process.kill()
    service.ended(_STOP)
    assert psutil.wait_procs(family, 10)[1] == []
    with starting(folder) as start:
        assert memories(start().ready(), new_user) == sorted(texts)


@pytest.mark.slow
def test_a_worker_that_cannot_start_ends_the_service_with_its_reason(serve: Serve, folder: Path) -> None:
    service = serve(OPENMEMORY_EMBEDDER_PROVIDER="no-such-provider")
    assert service.ended(within=START) == 2
    assert "no-such-provider" in service.err
    assert "a worker process did not start" in service.err
    assert list(folder.glob("run*")) == []
