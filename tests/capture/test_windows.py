"""Windows of conversations become captures: each message once, with what was said just before."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from openmemory.capture import windows
from openmemory.capture.status import Status
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryQuery
from openmemory.services import Services
from openmemory.sources.schemas import NewMessage, NewMessages, NewSession
from tests.capture.conftest import operation
from tests.llm.server import LlmServer, says


@pytest.fixture
async def own(inferring: Services) -> Services:
    """The services, without conversations of other tests that still wait."""
    async with inferring.database.transaction() as tx:
        await tx.execute(text("UPDATE sources SET captured = length"))
    return inferring


async def post(services: Services, caller: Caller, *said: str, thread: str = "chat", **more: Any) -> None:
    messages = [NewMessage(one, "user" if number % 2 == 0 else "assistant") for number, one in enumerate(said)]
    await services.conversations.add(caller, NewMessages(thread, [*messages], **more))


async def taken(services: Services, caller: Caller) -> list[list[str]]:
    """The messages of the captures, in the order in which these were made."""
    async with services.database.statement() as tx:
        query = "SELECT input FROM captures WHERE app_id = :app ORDER BY created_at, id"
        rows = await tx.scalars(text(query), {"app": caller.app_id})
        return [[turn["content"] for turn in row["messages"]] for row in rows]


async def idle(services: Services, caller: Caller) -> None:
    async with services.database.transaction() as tx:
        late = "UPDATE sources SET updated_at = now() - interval '1 hour' WHERE app_id = :app"
        await tx.execute(text(late), {"app": caller.app_id})


async def test_ten_messages_are_a_window_and_the_next_one_overlaps(own: Services, claude: Caller, model) -> None:
    said = [f"message {number}" for number in range(1, 22)]
    await post(own, claude, *said[:9])
    assert await own.windows.run() == 0
    await post(own, claude, *said[9:])
    assert await own.windows.run() == 2
    assert await taken(own, claude) == [said[:10], said[8:20]]
    assert await own.windows.run() == 0
    await idle(own, claude)
    assert await own.windows.run() == 1
    assert (await taken(own, claude))[-1] == said[18:21]
    assert await own.windows.run() == 0


async def test_long_messages_end_a_window_early(own: Services, claude: Caller, model) -> None:
    long = "word " * (windows.CHARACTERS // 10)
    await post(own, claude, long, long, "short")
    assert await own.windows.run() == 1
    assert await taken(own, claude) == [[long, long]]
    await own.conversations.close(claude, "chat")
    assert await own.windows.run() == 1
    assert (await taken(own, claude))[-1] == [long[: windows.MAX_OVERLAP], long[: windows.MAX_OVERLAP], "short"]


async def test_what_was_said_becomes_memories(
    own: Services, claude: Caller, self_: Caller, model: LlmServer, eventually
):
    model.script = lambda _: says({"operations": [{"event": "ADD", "text": "Ada likes green tea."}]})
    await own.conversations.add(claude, NewMessages("chat", [NewMessage("I like green tea.", "Ada")], "kitchen"))
    await own.conversations.close(claude, "chat")
    assert await own.windows.run() == 1

    async def done() -> bool:
        page = await own.captures.list(self_)
        return [capture.status for capture in page.items] == [Status.DONE]

    await eventually(done)
    assert any("Ada: I like green tea." in str(asked) for asked in model.asked)
    [memory] = (await own.memories.slice(self_, MemoryQuery(), offset=0, limit=10))[0]
    assert (memory.content, memory.namespace, memory.thread_id) == ("Ada likes green tea.", "kitchen", "chat")


async def test_a_memory_knows_its_message_by_its_place_in_the_thread(
    own: Services, claude: Caller, self_: Caller, model: LlmServer, eventually
):
    model.script = lambda _: says({"operations": []})
    await post(own, claude, *(f"message {number}" for number in range(1, 11)))
    assert await own.windows.run() == 1
    # Two messages before this window are read with it.
    facts = [operation("ADD", text=f"Fact {number}.", message=number) for number in (2, 4, 99)]
    model.script = lambda asked: says({"operations": facts if "message 12" in str(asked) else []})
    await post(own, claude, "message 11", "message 12")
    await idle(own, claude)
    assert await own.windows.run() == 1

    async def done() -> bool:
        page = await own.captures.list(self_)
        return [capture.status for capture in page.items] == [Status.DONE] * 2

    await eventually(done)
    results = (await own.captures.list(self_)).items[0].results
    assert [(result.memory, result.message) for result in results] == [
        ("Fact 2.", 10),
        ("Fact 4.", 12),
        ("Fact 99.", None),
    ]
    memories = (await own.memories.slice(self_, MemoryQuery(), offset=0, limit=10))[0]
    assert {memory.content: memory.metadata_ for memory in memories} == {
        "Fact 2.": {"message": 10}, "Fact 4.": {"message": 12}, "Fact 99.": {},
    }  # fmt: skip
    [message] = (await own.conversations.slice(self_, "chat", around=12, limit=1)).items
    assert message.content == "message 12"


async def test_what_is_not_to_be_inferred_or_was_deleted_is_not_taken(own: Services, claude: Caller, model) -> None:
    await post(own, claude, "a", thread="private", infer=False)
    await post(own, claude, "b", thread="gone")
    await own.conversations.close(claude, "private")
    await own.conversations.delete(claude, "gone")
    assert await own.windows.run() == 0
    assert await taken(own, claude) == []


async def test_a_session_is_not_taken_and_messages_that_follow_it_are(own: Services, claude: Caller, model) -> None:
    await own.sessions.save(claude, NewSession(1, "Tea", "Green tea it is.", "## Why\n\nIt is green.\n"))
    await idle(own, claude)
    assert await own.windows.run() == 0
    await post(own, claude, "a", thread="session-1")
    await idle(own, claude)
    assert await own.windows.run() == 1
    assert await taken(own, claude) == [["a"]]


async def test_two_workers_take_no_message_twice(own: Services, claude: Caller, model) -> None:
    said = [f"message {number}" for number in range(60)]
    for thread in ("one", "two"):
        await post(own, claude, *said, thread=thread)
    made = await asyncio.gather(*(own.windows.run() for _ in range(4)))
    assert sum(made) == 12
    new = [turn for window in await taken(own, claude) for turn in (window if len(window) == 10 else window[2:])]
    assert sorted(new) == sorted(2 * said)


async def test_without_a_language_model_messages_wait(services: Services, app_caller: Caller) -> None:
    await post(services, app_caller, *(f"message {number}" for number in range(12)))
    assert await services.windows.run() == 0
    async with services.database.statement() as tx:
        query = "SELECT captured FROM sources WHERE app_id = :app"
        assert await tx.scalar(text(query), {"app": app_caller.app_id}) == 0
