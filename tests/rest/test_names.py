"""Names, titles and paths are of one line: a line break or a control character would make them look like more."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

STRANGE = ("a\nb", "a\r\nb", "a\x1b[2Jb", "a\u2028b", "a\u202eb", "a\x85b")

SAID: list[Any] = [{"content": "Hello"}]
PLACES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "user": ("POST", "/api/v1/memories", {"text": "tea", "user_id": ...}),
    "app": ("POST", "/api/v1/memories", {"text": "tea", "app": ...}),
    "namespace": ("POST", "/api/v1/memories", {"text": "tea", "namespace": ...}),
    "thread": ("POST", "/api/v1/memories", {"text": "tea", "thread_id": ...}),
    "kind": ("POST", "/api/v1/memories", {"text": "tea", "kind": ...}),
    "category": ("POST", "/api/v1/memories", {"text": "tea", "categories": [...]}),
    "title of a thread": ("POST", "/api/v1/threads/t/messages", {"messages": SAID, "title": ...}),
    "role": ("POST", "/api/v1/threads/t/messages", {"messages": [{"content": "Hello", "role": ...}]}),
    "title of a session": ("POST", "/api/v1/sessions", {"number": 1, "content": "x", "title": ...}),
    "name of a project": ("POST", "/api/v1/projects", {"namespace": "shop", "name": ...}),
    "branch of a project": ("POST", "/api/v1/projects", {"namespace": "shop", "branch": ...}),
    "root of a project": ("POST", "/api/v1/projects", {"namespace": "shop", "root": ...}),
    "namespace of a project": ("POST", "/api/v1/projects", {"namespace": ...}),
    "new name of a project": ("POST", "/api/v1/projects/actions/move", {"namespace": "shop", "to": ...}),
    "topic": ("PUT", "/api/v1/values", {"topic": ..., "key": "k", "value": "v"}),
    "key of a value": ("PUT", "/api/v1/values", {"topic": "t", "key": ..., "value": "v"}),
    "path of a file": ("POST", "/api/v1/files/batch", {"namespace": "shop", "files": [{"path": ..., "text": "x"}]}),
    "new path of a file": (
        "POST", "/api/v1/files/finish", {"namespace": "shop", "renamed": [{"old": "a.md", "new": ...}]},
    ),
    "name of a key": ("POST", "/api/v1/keys", {"name": ..., "scopes": ["read"]}),
}  # fmt: skip


def filled(value: Any, name: str) -> Any:
    """The body with the name at the place of the ellipsis."""
    if value is ...:
        return name
    if isinstance(value, dict):
        return {key: filled(item, name) for key, item in value.items()}
    return [filled(item, name) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("place", PLACES)
async def test_a_name_of_several_lines_is_refused(client: httpx.AsyncClient, new_user: str, place: str) -> None:
    method, path, body = PLACES[place]
    assert (await client.post("/api/v1/memories", json={"user_id": new_user, "text": "milk"})).is_success
    for name in STRANGE:
        answer = await client.request(method, path, json={"user_id": new_user} | filled(body, name))
        assert answer.status_code == 422, answer.text
        assert "control characters, such as U+" in answer.text
    # So that the name is what is wrong.
    answer = await client.request(method, path, json={"user_id": new_user} | filled(body, "plain"))
    assert "control characters" not in answer.text


@pytest.mark.parametrize(("filename", "title"), [("a\nb.txt", "plain"), ("a.txt", "two\nlines")])
async def test_a_document_has_a_name_and_a_title_of_one_line(
    client: httpx.AsyncClient, new_user: str, filename: str, title: str
) -> None:
    form = {"user_id": new_user, "name": filename, "title": title}
    answer = await client.post("/api/v1/documents", data=form, files={"file": ("x.txt", b"We ship in May.")})
    assert answer.status_code == 422, answer.text
    assert "control characters" in answer.text


async def test_a_file_that_was_stored_under_another_path_can_still_be_removed(client, new_user) -> None:
    body = {"user_id": new_user, "namespace": "shop", "gone": ["a\nb.md"]}
    assert (await client.post("/api/v1/files/finish", json=body)).json() == {"renamed": 0, "removed": 0}
