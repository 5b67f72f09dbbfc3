"""The tokens that an assistant pays for, counted with the tokenizer of the packaged model."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from openmemory.embeddings.local import TOKENIZER
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services

Ask = Callable[..., Awaitable[httpx.Response]]

FACTS = [
    "Alice takes her tea without sugar.",
    "Alice deploys the web shop on Tuesdays, never on Fridays.",
    "Alice's birthday is on the third of March.",
    "Alice builds with Python 3.11 and Node 24.",
    "Alice prefers short answers without explanations.",
    "Alice keeps the staging database on port 5433.",
    "Alice decided to use PostgreSQL instead of MongoDB.",
    "Alice is allergic to penicillin.",
    "Alice plans the next release for April 2027.",
    "Alice moved from Lisbon to Porto last autumn.",
    "Alice painted the garden gate green.",
    "Alice's sister Julia is getting married in June.",
]


@pytest.fixture(scope="module")
def tokens() -> Callable[[str], int]:
    """Counts the tokens of a text."""
    tokenizer = Tokenizer.from_file(str(TOKENIZER.verified()))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)


@pytest.fixture
async def app(services: Services, new_user: str) -> dict[str, str]:
    """The address of an app whose user has a dozen memories."""
    caller = await services.directory.caller(new_user, "claude")
    await services.memories.add_many(caller, [MemoryCreate(text=text) for text in FACTS])
    await services.outbox_delivery.drain()
    return {"path": f"/mcp/claude/http/{new_user}?format=compact"}


async def _text(ask: Ask, app: dict[str, str], name: str, **arguments: Any) -> str:
    answer = await ask("tools/call", {"name": name, "arguments": arguments}, **app)
    result = answer.json()["result"]
    assert "structuredContent" not in result  # a client could show it to the model in place of the text
    [content] = result["content"]
    return str(content["text"])


@pytest.mark.slow
async def test_ten_results_cost_their_memories_and_at_most_22_tokens_each(
    ask: Ask, app: dict[str, str], tokens: Callable[[str], int]
) -> None:
    text = await _text(ask, app, "search_memory", query="What about Alice?")
    found = [fact for fact in FACTS if fact in text]
    assert len(found) == 10
    assert tokens(text) <= sum(map(tokens, found)) + 22 * len(found)


async def test_a_list_costs_its_memories_and_at_most_22_tokens_each(
    ask: Ask, app: dict[str, str], tokens: Callable[[str], int]
) -> None:
    text = await _text(ask, app, "list_memories")
    assert tokens(text) <= sum(map(tokens, FACTS)) + 22 * len(FACTS)


@pytest.mark.parametrize("path", ["/mcp", "/mcp/claude/http/alice"])
async def test_the_list_of_tools_costs_at_most_1600_tokens(ask: Ask, tokens: Callable[[str], int], path: str) -> None:
    listed = (await ask("tools/list", path=path)).json()["result"]["tools"]
    assert listed[0]["name"] == "search_memory"
    assert tokens(json.dumps(listed)) <= 1_600
