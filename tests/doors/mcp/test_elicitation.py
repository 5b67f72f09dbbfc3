"""The confirmation before everything is deleted, with the client of the SDK: asked of its user, or as an argument."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Literal

import httpx
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.types import ElicitRequestParams, ElicitResult

from openmemory.doors.mcp import elicitation
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.mcp.conftest import serving

Action = Literal["accept", "decline", "cancel"]


class User:
    """A user who gives the same answer to every question, and what they were asked."""

    def __init__(self, action: Action) -> None:
        self.action = action
        self.asked: list[str] = []

    async def answer(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params.message)
        return ElicitResult(action=self.action, content={} if self.action == "accept" else None)


Connect = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def connect(url: str, new_user: str) -> Connect:
    """Connects the client of an app. `user`: whom it can ask."""

    @asynccontextmanager
    async def opened(transport: str, user: User | None, mode: str = "legacy") -> AsyncIterator[Client]:
        address = f"{url}/mcp/claude/{transport}/{new_user}?format=compact"
        server: Any = sse_client(address) if transport == "sse" else address
        able = None if user is None else user.answer
        async with Client(server, mode=mode, elicitation_callback=able, read_timeout_seconds=30) as client:
            yield client

    return opened


@pytest.fixture
async def left(services: Services, app_caller: Caller) -> Callable[[], Any]:
    """Stores two memories, and tells how many there are."""
    await services.memories.add_many(app_caller, [MemoryCreate(text=f"Fact {number}") for number in range(2)])
    return lambda: services.memories.count(app_caller)


async def test_over_sse_the_user_is_asked_and_agrees(connect: Connect, left: Callable[[], Any]) -> None:
    user = User("accept")
    async with connect("sse", user) as client:
        done = await client.call_tool("delete_all_memories")
    assert user.asked == ["Delete all 2 memories that this app can see?"]
    assert not done.is_error
    assert done.content[0].text == "Successfully deleted all memories\nNote: Deleted 2 memories."
    assert await left() == 0


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_over_sse_the_user_is_asked_and_does_not_agree(
    connect: Connect, left: Callable[[], Any], action: Action
) -> None:
    user = User(action)
    async with connect("sse", user) as client:
        done = await client.call_tool("delete_all_memories")
        assert (done.is_error, done.content[0].text) == (False, "Nothing was deleted: the user did not agree.")
        assert (len(user.asked), await left()) == (1, 2)
        await client.call_tool("delete_all_memories", {"confirm": True})
    assert (len(user.asked), await left()) == (1, 0)


async def test_without_a_handshake_the_user_is_asked_in_a_round_of_its_own(
    connect: Connect, left: Callable[[], Any]
) -> None:
    user = User("accept")
    async with connect("http", user, "auto") as client:
        done = await client.call_tool("delete_all_memories")
    assert user.asked == ["Delete all 2 memories that this app can see?"]
    assert done.content[0].text == "Successfully deleted all memories\nNote: Deleted 2 memories."
    assert await left() == 0


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_without_a_handshake_the_user_may_decline(
    connect: Connect, left: Callable[[], Any], action: Action
) -> None:
    user = User(action)
    async with connect("http", user, "auto") as client:
        done = await client.call_tool("delete_all_memories")
    assert (done.is_error, done.content[0].text) == (False, "Nothing was deleted: the user did not agree.")
    assert (len(user.asked), await left()) == (1, 2)


@pytest.mark.parametrize(
    ("transport", "mode", "able"),
    [("sse", "legacy", False), ("http", "legacy", True), ("http", "auto", False)],
    ids=["a client that cannot ask", "streamable HTTP of an older protocol", "a client without a handshake"],
)
async def test_where_nobody_can_be_asked_the_argument_is_required(
    connect: Connect, left: Callable[[], Any], transport: str, mode: str, able: bool
) -> None:
    user = User("accept")
    async with connect(transport, user if able else None, mode) as client:
        told = await client.call_tool("delete_all_memories")
        assert told.is_error
        assert "confirm: nothing was deleted. This would delete 2 memories" in told.content[0].text
        assert "call again with confirm=true" in told.content[0].text
        assert (user.asked, await left()) == ([], 2)
        done = await client.call_tool("delete_all_memories", {"confirm": True})
    assert (done.is_error, await left()) == (False, 0)


MODERN = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
Round = Callable[..., Any]


@pytest.fixture
def call(http: httpx.AsyncClient, new_user: str) -> Round:
    """Sends one round of a call without a handshake: `await call("delete_all_memories", state=…, action="accept")`."""

    async def send(
        tool: str,
        arguments: dict[str, Any] | None = None,
        *,
        state: str | None = None,
        action: str | None = None,
        app: str = "claude",
        user: str = new_user,
    ) -> dict[str, Any]:
        capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        params: dict[str, Any] = {"name": tool, "arguments": arguments or {}, "_meta": MODERN | capabilities}
        if state is not None:
            params["requestState"] = state
        if action is not None:
            params["inputResponses"] = {"consent": {"action": action}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": tool}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        body: dict[str, Any] = (
            await http.post(f"/mcp/{app}/http/{user}?format=compact", json=message, headers=headers)
        ).json()
        return body

    return send


def question(answer: dict[str, Any]) -> str:
    result = answer["result"]
    assert result["resultType"] == "input_required"
    return str(result["inputRequests"]["consent"]["params"]["message"])


async def test_consent_counts_only_for_what_was_asked(
    call: Round, left: Callable[[], Any], services: Services, app_caller: Caller
) -> None:
    first = await call("delete_all_memories")
    assert question(first) == "Delete all 2 memories that this app can see?"
    await services.memories.add(app_caller, MemoryCreate(text="One more"))
    again = await call("delete_all_memories", state=first["result"]["requestState"], action="accept")
    assert question(again) == "Delete all 3 memories that this app can see?"
    assert await left() == 3
    done = await call("delete_all_memories", state=again["result"]["requestState"], action="accept")
    assert "Deleted 3" in str(done["result"])
    assert await left() == 0


async def test_an_answer_to_no_question_is_no_consent(call: Round, left: Callable[[], Any]) -> None:
    assert (
        question(await call("delete_all_memories", action="accept")) == "Delete all 2 memories that this app can see?"
    )
    assert await left() == 2


async def test_a_state_counts_for_the_call_that_it_was_sealed_for(
    call: Round, left: Callable[[], Any], new_user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = (await call("delete_all_memories"))["result"]["requestState"]
    assert "agreed" not in state
    flipped = state[:-1] + ("A" if state[-1] != "A" else "B")
    wrong: list[dict[str, Any]] = [
        {"state": flipped}, {"state": "v1.AAAA"}, {"state": "{}"}, {"state": state, "app": "cursor"},
        {"state": state, "user": f"{new_user}-other"}, {"state": state, "arguments": {"confirm": False}},
        {"state": state, "tool": "add_memories"},
    ]  # fmt: skip
    for change in wrong:
        answer = await call(change.pop("tool", "delete_all_memories"), action="accept", **change)
        assert answer["error"]["message"] == "Invalid or expired requestState", change
    now = time.time()
    monkeypatch.setattr("mcp.server.request_state.time.time", lambda: now + elicitation.PATIENCE + 61)
    answer = await call("delete_all_memories", state=state, action="accept")
    assert answer["error"]["message"] == "Invalid or expired requestState"
    assert await left() == 2


async def test_each_question_of_a_call_is_asked_once(
    services: Services, new_user: str, left: Callable[[], Any]
) -> None:
    mcp = services.settings.mcp.model_copy(update={"write_mode": "ask"})
    settings = services.settings.model_copy(update={"mcp": mcp})
    user = User("accept")
    async with (
        serving(replace(services, settings=settings)) as address,
        Client(
            f"{address}/mcp/claude/http/{new_user}?format=compact",
            mode="auto",
            elicitation_callback=user.answer,
            read_timeout_seconds=30,
        ) as client,
    ):
        done = await client.call_tool("delete_all_memories")
    assert not done.is_error
    assert user.asked == [
        "May the assistant change your memories? (Forget everything)", "Delete all 2 memories that this app can see?",
    ]  # fmt: skip
    assert await left() == 0
