"""Names over every door: trimmed, without control characters, and one form of a category."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest

MEMORIES, SEARCH = "/api/v1/memories", "/api/v1/memories/search"
BAD = "a\x07b"


def _places(user: str) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """A request with a control character in each place that takes a name."""
    memory = {"user_id": user, "text": "x", "infer": False}
    rule = {"user_id": user, "effect": "deny", "object_type": "namespace", "object": "a", "app": "claude"}
    policy = {"user_id": user, "criteria_type": "namespace", "criteria_name": "a", "days_to_archive": 9}
    key = {"name": "k", "user_id": user}
    filtered = {"user_id": user, "query": "x"}
    named = f"/api/v1/categories/{quote(BAD)}"
    value = {"user_id": user, "topic": "t", "key": "k", "value": "v"}
    thread, folder = "/api/v1/threads/t/messages", {"user_id": user, "namespace": "a"}
    return {
        "user_id": ("POST", MEMORIES, memory | {"user_id": BAD}),
        "user_id of a list": ("GET", f"{MEMORIES}?user_id={quote(BAD)}", {}),
        **{name: ("POST", MEMORIES, memory | {name: BAD}) for name in ("app", "namespace", "thread_id", "kind", "key")},
        "categories": ("POST", MEMORIES, memory | {"categories": [BAD]}),
        "categories of a list": ("GET", f"{MEMORIES}?user_id={user}&categories={quote(BAD)}", {}),
        "batch": ("POST", "/api/v1/memories/batch", {"user_id": user, "memories": [{"text": "x", "app": BAD}]}),
        **{
            f"{name} of a search": ("POST", SEARCH, filtered | {name: BAD})
            for name in ("namespace", "thread_id", "kind")
        },
        "categories of a search": ("POST", SEARCH, filtered | {"categories": [BAD]}),
        "app of a search": ("POST", SEARCH, filtered | {"app": BAD}),
        "app of a rule": ("POST", "/api/v1/grants", rule | {"app": BAD}),
        "namespace of a rule": ("POST", "/api/v1/grants", rule | {"object": BAD}),
        "category of a rule": ("POST", "/api/v1/grants", rule | {"object_type": "category", "object": BAD}),
        "policy": ("POST", "/api/v1/archive-policies", policy | {"criteria_name": BAD}),
        "described category": ("PUT", f"{named}?user_id={user}", {"description": "Something."}),
        "forgotten category": ("DELETE", f"{named}?user_id={user}", {}),
        **{f"{name} of a key": ("POST", "/api/v1/keys", key | {name: BAD}) for name in ("name", "user_id", "app")},
        "namespaces of a key": ("POST", "/api/v1/keys", key | {"namespaces": [BAD]}),
        "user of an archive": ("POST", "/api/v1/backup/export", {"user_id": BAD}),
        **{
            f"{name} of a project": ("POST", "/api/v1/projects", {"user_id": user, "namespace": "a", name: BAD})
            for name in ("namespace", "name", "root", "repo", "branch", "head")
        },
        "new namespace of a project": (
            "POST",
            "/api/v1/projects/actions/move",
            {"user_id": user, "namespace": "a", "to": BAD},
        ),
        **{f"{name} of a value": ("PUT", "/api/v1/values", value | {name: BAD}) for name in ("topic", "key")},
        "title of a thread": ("POST", thread, {"user_id": user, "messages": [{"content": "x"}], "title": BAD}),
        "role": ("POST", thread, {"user_id": user, "messages": [{"content": "x", "role": BAD}]}),
        "title of a session": (
            "POST",
            "/api/v1/sessions",
            {"user_id": user, "number": 1, "content": "x", "title": BAD},
        ),
        "path of a file": ("POST", "/api/v1/files/batch", folder | {"files": [{"path": BAD, "text": "x"}]}),
        "new path of a file": ("POST", "/api/v1/files/finish", folder | {"renamed": [{"old": "a.md", "new": BAD}]}),
        "part of an app's name": ("GET", f"/api/v1/apps?user_id={user}&name={quote(BAD)}", {}),
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", _places("x"))
async def test_no_place_takes_a_control_character(client: httpx.AsyncClient, new_user: str, place: str) -> None:
    await client.post(MEMORIES, json={"user_id": new_user, "text": "there", "infer": False})
    method, path, body = _places(new_user)[place]
    answer = await client.request(method, path, json=body or None)
    assert answer.status_code == 422, answer.text
    assert "control characters, such as U+0007" in answer.text


@pytest.mark.parametrize("sign", ["\n", "\r\n", "\x1b[2J", "\x85", "\u2028", "\u202e"])
@pytest.mark.parametrize("field", ["name", "title"])
async def test_a_document_has_a_name_and_a_title_of_one_line(
    client: httpx.AsyncClient, new_user: str, field: str, sign: str
) -> None:
    form = {"user_id": new_user, "name": "a.txt", "title": "a"} | {field: f"a{sign}b"}
    answer = await client.post("/api/v1/documents", data=form, files={"file": ("x.txt", b"We ship in May.")})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"].startswith(f"{field}: must not contain control characters")


async def test_a_file_that_was_stored_under_another_path_can_still_be_removed(client, new_user):
    body = {"user_id": new_user, "namespace": "a", "gone": [BAD], "renamed": [{"old": BAD, "new": "b.md"}]}
    assert (await client.post("/api/v1/files/finish", json=body)).json() == {"renamed": 0, "removed": 0}


async def test_surrounding_blanks_are_no_part_of_a_name(
    client: httpx.AsyncClient, new_user: str, remember: Callable[..., Any]
) -> None:
    row = await remember(
        f" {new_user} ", "Trimmed", app=" claude ", namespace=" shop\t", thread_id=" t ", kind=" note ", key=" k\n",
        categories=[" errands "],
    )  # fmt: skip
    detail = (await client.get(f"{MEMORIES}/{row['id']}", params={"user_id": f"{new_user} "})).json()
    names = ("app_name", "namespace", "thread_id", "kind", "key", "categories")
    assert [detail[name] for name in names] == ["claude", "shop", "t", "note", "k", ["errands"]]
    found = await client.post(
        SEARCH, json={"user_id": new_user, "query": "trimmed", "namespace": " shop ", "kind": "note ", "app": " claude"}
    )
    assert [result["id"] for result in found.json()["results"]] == [row["id"]]
    listed = await client.get(MEMORIES, params={"user_id": new_user, "namespace": " shop "})
    assert listed.json()["total"] == 1


async def test_dots_and_slashes_are_letters_of_a_name(client: httpx.AsyncClient, new_user: str, remember: Any) -> None:
    user = f"../{new_user}/.."
    row = await remember(user, "Climbing", app="../app", namespace="../../ns", thread_id="../t", categories=["../c"])
    detail = (await client.get(f"{MEMORIES}/{row['id']}", params={"user_id": user})).json()
    assert (detail["app_name"], detail["namespace"], detail["categories"]) == ("../app", "../../ns", ["../c"])


SPELLINGS = ("Work", "WORK", " work ", "wOrk")


async def test_categories_that_differ_by_case_or_blanks_are_one(
    client: httpx.AsyncClient, new_user: str, remember: Any
) -> None:
    rows = [await remember(new_user, f"Fact {word}", categories=[word, "work"]) for word in SPELLINGS]
    ids = {row["id"] for row in rows}
    used = (await client.get(f"{MEMORIES}/categories", params={"user_id": new_user})).json()
    assert [each["name"] for each in used["categories"]] == ["work"]
    for word in SPELLINGS:
        listed = await client.get(MEMORIES, params={"user_id": new_user, "categories": word})
        assert {item["id"] for item in listed.json()["items"]} == ids
        assert {tuple(item["categories"]) for item in listed.json()["items"]} == {("work",)}
        for asked in ({"categories": [word]}, {"filter": {"category": word}}, {"filter": {"categories": [word, "x"]}},
                      {"filter": {"category": {"icontains": word.strip()[1:]}}}):  # fmt: skip
            found = await client.post(SEARCH, json={"user_id": new_user, "query": "fact", **asked})
            assert {result["id"] for result in found.json()["results"]} == ids, asked
        none = await client.post(
            SEARCH, json={"user_id": new_user, "query": "fact", "filter": {"NOT": {"category": word}}}
        )
        assert none.json()["results"] == []
    changed = await client.put(
        f"{MEMORIES}/{rows[0]['id']}", json={"user_id": new_user, "categories": ["HOME", "Home "]}
    )
    assert changed.status_code == 200
    detail = (await client.get(f"{MEMORIES}/{rows[0]['id']}", params={"user_id": new_user})).json()
    assert detail["categories"] == ["home"]


@pytest.mark.parametrize("word", SPELLINGS)
async def test_a_rule_hides_a_category_however_it_is_spelled(
    client: httpx.AsyncClient, new_user: str, remember: Any, word: str
) -> None:
    await remember(new_user, "The salary is confidential", categories=["work"])
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "category", "object": word}
    assert (await client.post("/api/v1/grants", json=rule)).status_code == 201
    asked = {"user_id": new_user, "query": "salary"}
    assert (await client.post(SEARCH, json=asked | {"app": "cursor"})).json()["results"] == []
    assert len((await client.post(SEARCH, json=asked | {"app": "claude"})).json()["results"]) == 1


async def test_a_policy_and_a_description_are_about_the_same_category(
    client: httpx.AsyncClient, new_user: str, remember: Any
) -> None:
    await remember(new_user, "Buy milk", categories=["errands"])
    params = {"user_id": new_user}
    for word in ("Errands", " ERRANDS"):
        policy = {"user_id": new_user, "criteria_type": "category", "criteria_name": word, "days_to_archive": 9}
        made = await client.post("/api/v1/archive-policies", json=policy)
        assert (made.status_code, made.json()["criteria_name"]) == (201, "errands")
        told = await client.put(f"/api/v1/categories/{quote(word)}", params=params, json={"description": "Shopping."})
        assert told.json()["name"] == "errands"
    listed = await client.get("/api/v1/archive-policies", params=params)
    assert len(listed.json()["policies"]) == 1
    gone = await client.delete("/api/v1/categories/ERRANDS", params=params)
    assert gone.status_code == 200, gone.text
