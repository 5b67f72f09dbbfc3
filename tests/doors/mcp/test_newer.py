"""What assistants read of newer memories, and how they say what no longer holds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from openmemory.dedup import near_changes
from openmemory.projects import tokens
from openmemory.services import Services

Call = Callable[..., Awaitable[dict[str, Any]]]
Lines = Callable[..., Awaitable[list[str]]]

OLD, NEW = "I live in Hamburg.", "I moved to Leipzig last week."


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make the answers late."""
    monkeypatch.setattr(near_changes, "BUDGET", 20.0)


async def test_an_answer_says_what_the_text_may_change_in_few_tokens(services: Services, lines: Lines):
    added = await lines("add_memories", text=OLD, infer=False)
    short = added[0].split()[1]
    await services.outbox_delivery.drain()
    _, near, hint = await lines("add_memories", text=NEW, infer=False)
    assert near.startswith(f"Near: {short}, 20")
    assert near.endswith(f": {OLD}")
    assert hint == "If one no longer holds, add again with supersedes."
    assert tokens.count(near) + tokens.count(hint) <= 40


async def test_a_long_memory_is_named_by_its_beginning(services: Services, lines: Lines):
    await lines("add_memories", text=f"The database port is 5433 {'and the host is db-main ' * 8}.", infer=False)
    await services.outbox_delivery.drain()
    told = await lines("add_memories", text="The database port is 5434.", infer=False)
    for line in told:
        assert tokens.count(line) <= 60


async def test_what_no_longer_holds_is_superseded_by_its_short_id(services: Services, call: Call, lines: Lines):
    added = await lines("add_memories", text=OLD, infer=False)
    short = added[0].split()[1]
    await services.outbox_delivery.drain()
    told = await lines("add_memories", text=NEW, infer=False, supersedes=[short])
    assert told[0].startswith("SUPERSEDE ")
    assert told[1] == f"before: {OLD}"
    shown = (await call("list_memories", format="json"))["structuredContent"]["result"]
    assert [one["memory"] for one in shown] == [NEW]


async def test_the_line_of_what_no_longer_holds_names_the_newer(services: Services, call: Call, lines: Lines):
    await lines("add_memories", text=OLD, infer=False)
    added = await lines("add_memories", text=NEW, infer=False)
    await services.outbox_delivery.drain()
    short = added[0].split()[1]
    first, second = await lines("search_memory", query="Where do I live, in Hamburg?")
    assert first.startswith(f"{short} ")
    assert f"[newer: {short}]" in second
    found = (await call("search_memory", query="Where do I live, in Hamburg?", format="json"))["structuredContent"]
    assert found["results"][1]["newer"] == found["results"][0]["id"]
