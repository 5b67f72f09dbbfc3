"""The stdio bridge between an assistant and the service, when either misbehaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import furnish
from tests.journeys.bridging import bridged
from tests.journeys.service import Service

pytestmark = pytest.mark.journey

OPENING = {
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def _tool(id_: int, name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": id_, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (b"{", -32700, "Parse error"),
        (b"\xff\xfe", -32700, "Parse error"),
        (b"[1]", -32600, "must be one JSON-RPC message"),
        (b'"text"', -32600, "Invalid request"),
        (b"[" * 100_000, -32700, "Parse error"),
    ],
)
async def test_what_is_not_json_rpc_is_answered_and_the_bridge_lives_on(
    served: Service, new_user: str, line: bytes, code: int, said: str
) -> None:
    async with bridged(served.folder, new_user) as bridge:
        await bridge.say(line)
        answer = await bridge.hear()
        assert answer["error"]["code"] == code
        assert said in answer["error"]["message"]
        assert (await bridge.ask(OPENING))["result"]["protocolVersion"] == "2025-11-25"
        assert await bridge.end() == 0


async def test_an_unknown_method_or_tool_is_an_error_with_the_id_of_the_call(served: Service, new_user: str) -> None:
    async with bridged(served.folder, new_user) as bridge:
        await bridge.ask(OPENING)
        assert (await bridge.ask({"id": "a", "method": "no/such"}))["error"]["code"] == -32601
        unknown = (await bridge.ask(_tool(2, "no_such_tool")))["error"]
        assert unknown["code"] == -32602
        assert "Known are add_memories" in unknown["message"]


@pytest.mark.slow
async def test_calls_at_once_are_each_answered(served: Service, new_user: str) -> None:
    async with bridged(served.folder, new_user) as bridge:
        await bridge.ask(OPENING)
        for number in range(1, 31):
            message = {"jsonrpc": "2.0"} | _tool(number, "add_memories", text=f"Fact number {number}")
            await bridge.say(json.dumps(message).encode())
        answers = [await bridge.hear() for _ in range(30)]
        assert {answer["id"] for answer in answers} == set(range(1, 31))
        listed = await bridge.ask(_tool(31, "list_memories", format="json"))
        assert listed["result"]["structuredContent"]["total"] == 30


@pytest.mark.slow
async def test_a_batch_is_carried_for_a_client_whose_revision_has_batches(served: Service, new_user: str) -> None:
    opening = OPENING | {"params": OPENING["params"] | {"protocolVersion": "2025-03-26"}}
    calls = [{"jsonrpc": "2.0"} | _tool(number, "add_memories", text=f"Fact number {number}") for number in (1, 2)]
    batch = [{"jsonrpc": "2.0", "method": "notifications/initialized"}, *calls]
    async with bridged(served.folder, new_user) as bridge:
        assert (await bridge.ask(opening))["result"]["protocolVersion"] == "2025-03-26"
        await bridge.say(json.dumps(batch[:1]).encode())  # asks nothing, so nothing is answered
        await bridge.say(json.dumps(batch).encode())
        answers = await bridge.hear()
        assert [answer["id"] for answer in answers] == [1, 2]
        assert "ADD" in str(answers[1]["result"])
        await bridge.say(b"[]")
        assert (await bridge.hear())["error"]["code"] == -32600
        assert await bridge.end() == 0


async def test_a_batch_is_refused_to_a_client_whose_revision_has_none(served: Service, new_user: str) -> None:
    async with bridged(served.folder, new_user) as bridge:
        await bridge.ask(OPENING)
        await bridge.say(b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]')
        answer = await bridge.hear()
        assert answer["error"]["code"] == -32600
        assert "2025-03-26" in answer["error"]["message"]


@pytest.mark.slow
async def test_every_request_of_a_batch_is_answered_when_the_service_is_gone(
    own: Callable[[], Service], new_user: str
) -> None:
    service = own()
    await asyncio.to_thread(service.ready)
    opening = OPENING | {"params": OPENING["params"] | {"protocolVersion": "2025-03-26"}}
    async with bridged(service.folder, new_user) as bridge:
        await bridge.ask(opening)
        service.process.kill()
        service.process.wait(10)
        await bridge.say(
            json.dumps([{"jsonrpc": "2.0"} | _tool(number, "list_memories") for number in (1, 2)]).encode()
        )
        answers = await bridge.hear()
        assert [(answer["id"], answer["error"]["code"]) for answer in answers] == [(1, -32000), (2, -32000)]


@pytest.fixture
def own(short_folder: Path, new_user: str) -> Iterator[Callable[[], Service]]:
    """Starts services on a folder of the test's own, each time on another port."""
    started: list[Service] = []

    def start() -> Service:
        started.append(Service("--data-dir", str(furnish(short_folder / new_user[-8:])), "--port", "0"))
        return started[-1]

    yield start
    for service in started:
        service.close()


@pytest.mark.slow
async def test_a_restart_of_the_service_on_another_port_goes_unnoticed(
    own: Callable[[], Service], new_user: str
) -> None:
    first = own()
    before = await asyncio.to_thread(first.ready)
    async with bridged(first.folder, new_user) as bridge:
        await bridge.ask(OPENING)
        assert "result" in await bridge.ask(_tool(1, "add_memories", text="Kept across a restart"))
        first.process.kill()
        first.process.wait(10)
        second = own()
        listed = await bridge.ask(_tool(2, "list_memories", format="json"))
        [item] = listed["result"]["structuredContent"]["result"]
        assert item["memory"] == "Kept across a restart"
        assert await asyncio.to_thread(second.ready) != before
        assert await bridge.end() == 0
