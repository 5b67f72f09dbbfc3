"""The confirmation before everything is deleted, with the client of the SDK: asked of its user, or as an argument."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp.types import ElicitRequestParams, ElicitResult

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services

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


@pytest.mark.parametrize(
    ("transport", "mode", "able"),
    [("sse", "legacy", False), ("http", "legacy", True), ("http", "auto", True)],
    ids=["a client that cannot ask", "streamable HTTP", "streamable HTTP without a handshake"],
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
