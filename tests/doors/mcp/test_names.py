from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

BAD = "a\x07b"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add_memories", {"text": "x", "namespace": BAD}), ("list_memories", {"namespace": BAD}),
        ("search_memory", {"query": "x", "thread_id": BAD}), ("search_memory", {"query": "x", "categories": [BAD]}),
    ],
)  # fmt: skip
async def test_no_tool_takes_a_control_character(
    failure: Callable[..., Awaitable[str]], name: str, arguments: dict[str, Any]
) -> None:
    assert "must not contain control characters, such as U+0007" in await failure(name, **arguments)


@pytest.mark.parametrize("path", [f"/mcp/{quote(BAD)}/http/x", f"/mcp/x/http/{quote(BAD)}"])
async def test_no_address_takes_a_control_character(ask: Callable[..., Awaitable[httpx.Response]], path: str) -> None:
    answer = await ask("tools/list", path=path)
    assert answer.status_code == 400
    assert "must not contain control characters" in answer.text
