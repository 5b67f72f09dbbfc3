"""Files of other programs, imported over REST: tried first, then imported."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.importers.hostile import HOSTILE

IMPORTS = "/api/v1/imports"


def _mem0(*users: str) -> bytes:
    rows = [
        {"id": f"8f14e45f-ceea-467f-a8c4-2b1c0d7d3a1{number}", "memory": f"tea of {user}", "user_id": user}
        for number, user in enumerate(users)
    ]
    return json.dumps({"results": rows}).encode()


async def _sent(
    client: httpx.AsyncClient, content: bytes, user: str, status: int = 200, **params: Any
) -> dict[str, Any]:
    files = {"file": ("file", content)}
    answer = await client.post(IMPORTS, params=params, data={"user_id": user}, files=files)
    assert answer.status_code == status, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_file_is_tried_and_then_imported(client: httpx.AsyncClient, new_user: str) -> None:
    async def status() -> int:
        """404: there is no such user to export."""
        return (await client.get("/api/v1/memories", params={"user_id": new_user, "export": True})).status_code

    tried = await _sent(client, _mem0(new_user), new_user, dry_run=True)
    assert (tried["kind"], tried["users"]) == ("memories of mem0 as JSON", {new_user: 1})
    assert tried["imported"][0]["report"]["memories"]["added"] == 1
    assert await status() == 404
    done = await _sent(client, _mem0(new_user), new_user)
    assert (done["imported"][0]["into"], done["left_out"]["total"]) == (new_user, 0)
    assert await status() == 200
    again = await _sent(client, _mem0(new_user), new_user)
    assert again["imported"][0]["report"]["memories"]["added"] == 0


async def test_one_of_several_users_goes_into_another(client: httpx.AsyncClient, new_user: str) -> None:
    content = _mem0("anna", "bob")
    done = await _sent(client, content, new_user, of="bob", into=f"{new_user}-bob")
    assert [(one["user"], one["into"]) for one in done["imported"]] == [("bob", f"{new_user}-bob")]
    listed = await client.get("/api/v1/memories", params={"user_id": f"{new_user}-bob"})
    assert [one["content"] for one in listed.json()["items"]] == ["tea of bob"]
    refused = await _sent(client, content, new_user, 422, of="carol")
    assert "of: must be a user of the file, not 'carol'; it has anna, bob" in refused["detail"]
    assert "mode: input should be" in (await _sent(client, content, new_user, 422, mode="all"))["detail"]


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_refused(client: httpx.AsyncClient, new_user: str, name: str, tmp_path: Path) -> None:
    made, words = HOSTILE[name]
    content = made(tmp_path / "openmemory.db", new_user)
    status = 400 if "zip" in name or name == "bomb" else 422
    detail = (await _sent(client, content, new_user, status))["detail"]
    assert re.search(words, detail)
    assert (await client.get("/api/v1/memories", params={"user_id": new_user, "export": True})).status_code == 404
