"""Every path answers with and without a trailing slash, and redirects nobody: old clients do not follow a 307."""

from __future__ import annotations

import httpx
import pytest

MEMORIES = "/api/v1/memories"
APPS = "/api/v1/apps"

_ID = "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"
PATHS = [
    ("GET", MEMORIES), ("POST", MEMORIES), ("DELETE", MEMORIES), ("GET", f"{MEMORIES}/categories"),
    ("GET", f"{MEMORIES}/{_ID}"), ("PUT", f"{MEMORIES}/{_ID}"), ("POST", f"{MEMORIES}/actions/archive"),
    ("POST", f"{MEMORIES}/actions/pause"), ("GET", f"{MEMORIES}/{_ID}/access-log"), ("POST", f"{MEMORIES}/filter"),
    ("GET", f"{MEMORIES}/{_ID}/related"), ("GET", APPS), ("GET", f"{APPS}/{_ID}"), ("GET", f"{APPS}/{_ID}/memories"),
    ("GET", f"{APPS}/{_ID}/accessed"), ("PUT", f"{APPS}/{_ID}"), ("GET", "/api/v1/stats"), ("GET", "/api/v1/config"),
    ("PUT", "/api/v1/config"), ("PATCH", "/api/v1/config"), ("POST", "/api/v1/config/reset"),
    *((method, f"/api/v1/config/{part}") for method in ("GET", "PUT")
      for part in ("mem0/llm", "mem0/embedder", "mem0/vector_store", "openmemory")),
    ("POST", "/api/v1/backup/export"), ("POST", "/api/v1/backup/import"), ("POST", "/mcp/messages"),
    ("POST", "/mcp/claude/sse/alice/messages"), ("POST", "/mcp/claude/http/alice"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_every_path_is_served_in_both_forms(api: httpx.AsyncClient, method: str, path: str) -> None:
    """Whatever it answers to an empty request: it is the same, no redirect, and not that there is no such path."""
    answers = [await api.request(method, f"{path}{slash}") for slash in ("", "/")]
    seen = [(answer.status_code, answer.text) for answer in answers]
    assert seen[0] == seen[1]
    for answer in answers:
        assert answer.status_code not in (301, 302, 307, 308, 405)
        assert '"not_found"' not in answer.text, answer.text
