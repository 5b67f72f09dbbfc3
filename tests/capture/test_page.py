"""The page of captures."""

from __future__ import annotations

import httpx

from openmemory.capture.schemas import CaptureCreate, Turn
from openmemory.doors.server.application import create_app
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.capture.conftest import Say, does, operation
from tests.doors.web.conftest import Visitor
from tests.llm.server import LlmServer


async def test_a_capture_is_shown_with_what_was_made_of_it_and_undone(
    inferring: Services, model: LlmServer, say: Say, self_: Caller
) -> None:
    model.script = does(operation("ADD", text="Alice likes black coffee"))
    outcome = await say("By the way, Alice likes her coffee black")
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(inferring)), base_url="http://localhost:8765"
    ) as http:
        visitor = Visitor(http, self_.user)
        await visitor.get("activity/captures")
        assert "By the way, Alice likes her coffee black add Alice likes black coffee" in visitor.words
        await visitor.submit(f"activity/captures/{outcome.capture_id}/undo", next="activity/captures")
        assert "Undone: everything is as it was before this capture." in visitor.words
        assert "undone" in visitor.words
        assert ">Undo<" not in visitor.shown.partition("<main")[2]


async def test_a_conversation_is_shown_turn_by_turn(inferring: Services, model: LlmServer, self_: Caller) -> None:
    turns = (Turn("user", "Where is my passport?"), Turn("assistant", "In the drawer."))
    await inferring.captures.add(self_, CaptureCreate(MemoryCreate(text=""), messages=turns, wait=True))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(inferring)), base_url="http://localhost:8765"
    ) as http:
        visitor = Visitor(http, self_.user)
        await visitor.get("activity/captures")
        assert "user: Where is my passport? assistant: In the drawer." in visitor.words
