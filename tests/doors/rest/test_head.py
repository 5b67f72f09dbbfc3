"""Forms of a request that count as another: HEAD as GET without the body, a doubled slash as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

PATHS = [
    "/health", "/health/live", "/", "/docs", "/docs/start.js", "/openapi.json", "/metrics",
    "/ui/static/style.css", "/api/v1/nowhere", "/api/v1/memories",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
async def test_head_has_the_status_and_headers_of_get(client: httpx.AsyncClient, path: str) -> None:
    get, head = await client.get(path), await client.head(path)
    assert (head.status_code, head.content) == (get.status_code, b"")
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # its numbers count the request before
        assert head.headers.get("content-length") == get.headers.get("content-length")
    assert head.headers.keys() == get.headers.keys()


async def test_head_reads_a_memory_as_get_does(
    client: httpx.AsyncClient, new_user: str, remember: Callable[..., Any]
) -> None:
    row = await remember(new_user, "Alice drinks tea.")
    path, who = f"/api/v1/memories/{row['id']}", {"user_id": new_user}
    get, head = await client.get(path, params=who), await client.head(path, params=who)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(get.content)))
    assert (await client.head(path, params={"user_id": "another"})).status_code == 404


async def test_a_doubled_slash_at_the_start_of_an_address_counts_as_one(
    client: httpx.AsyncClient, new_user: str, remember: Callable[..., Any]
) -> None:
    row = await remember(new_user, "Alice drinks tea.")
    for path in ("//health/live", f"//api/v1/memories/{row['id']}", "///docs"):
        answer = await client.get(f"http://localhost:8765{path}", params={"user_id": new_user})
        assert answer.status_code == 200, answer.text
