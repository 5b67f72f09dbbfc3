"""`GET /api/v1/sources`: conversations, sessions, files and documents in one list."""

from __future__ import annotations

from typing import Any

import httpx
import pytest


@pytest.fixture
async def kept(client: httpx.AsyncClient, new_user: str) -> str:
    """A user with a source of each kind, the document last."""

    async def send(path: str, **request: Any) -> None:
        answer = await client.post(f"/api/v1/{path}", **request)
        assert answer.status_code == 200, answer.text

    whose = {"user_id": new_user, "app": "cursor", "namespace": "shop"}
    said = {"messages": [{"content": "Hello."}, {"content": "Hi."}], "title": "A greeting"}
    await send("threads/t-1/messages", json=whose | said)
    await send("sessions", json=whose | {"number": 3, "title": "Retries", "summary": "Three tries."})
    file = {"path": "src/tea.py", "text": "def tea(): ...\n"}
    await send("files/batch", json=whose | {"namespace": "default", "files": [file]})
    await send("documents", data=whose | {"app": "claude"}, files={"file": ("lease.txt", b"The rent is 900 euros.")})
    return new_user


async def test_all_kinds_are_in_one_list_the_last_changed_first(client: httpx.AsyncClient, kept: str):
    async def listed(**params: Any) -> Any:
        answer = await client.get("/api/v1/sources", params={"user_id": kept} | params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    found = await listed()
    assert found["total"] == 4
    assert [(one["kind"], one["name"], one["title"], one["passages"]) for one in found["items"]] == [
        ("document", "lease.txt", None, 1),
        ("file", "src/tea.py", None, 1),
        ("session", "session-3", "Retries", 1),
        ("conversation", "t-1", "A greeting", 2),
    ]
    assert [(one["namespace"], one["app_name"]) for one in found["items"][:2]] == [
        ("shop", "claude"), ("default", "cursor"),
    ]  # fmt: skip
    assert [one["kind"] for one in (await listed(kind=["file", "session"]))["items"]] == ["file", "session"]
    assert [one["kind"] for one in (await listed(kind="conversation"))["items"]] == ["conversation"]
    assert (await listed(namespace="shop", size=2, page=2))["items"][0]["kind"] == "conversation"
    assert (await listed(namespace="other"))["total"] == 0


async def test_an_app_lists_what_it_may_read(client: httpx.AsyncClient, kept: str):
    rule = {"user_id": kept, "app": "cursor", "effect": "deny", "object_type": "namespace", "object": "shop"}
    answer = await client.post("/api/v1/grants", json=rule)
    assert answer.status_code in (200, 201), answer.text
    seen = (await client.get("/api/v1/sources", params={"user_id": kept, "app": "cursor"})).json()
    assert [one["name"] for one in seen["items"]] == ["src/tea.py"]


async def test_an_unknown_kind_is_refused(client: httpx.AsyncClient, new_user: str):
    answer = await client.get("/api/v1/sources", params={"user_id": new_user, "kind": "memory"})
    assert answer.status_code == 422
    assert "conversation" in answer.text
