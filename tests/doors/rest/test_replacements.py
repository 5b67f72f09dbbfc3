"""What a newer memory replaces, over REST."""

from __future__ import annotations

from uuid import uuid4

import pytest

from openmemory.dedup import near_changes

MEMORIES, PATH = "/api/v1/memories", "/api/v1/replacements"
OLD, NEW = "I live in Hamburg.", "I moved to Leipzig last week."


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine must not make the answers late."""
    monkeypatch.setattr(near_changes, "BUDGET", 20.0)


@pytest.fixture
def add(client, services, new_user):
    async def run(text, *, status=200, **fields):
        body = {"user_id": new_user, "text": text, "infer": False, **fields}
        answer = await client.post(MEMORIES, json=body)
        assert answer.status_code == status, answer.text
        await services.outbox_delivery.drain()
        return answer.json()

    return run


async def test_an_answer_names_what_is_near_and_a_text_supersedes(client, new_user, add):
    old = await add(OLD)
    assert "near" not in old
    new = await add(NEW)
    assert [(one["id"], one["memory"], one["replaced"]) for one in new["near"]] == [(old["id"], OLD, True)]
    again = await add("I moved to Dresden now.", supersedes=[old["id"][:8], new["id"]])
    assert again["event"] == "SUPERSEDE"
    shown = (await client.get(f"{MEMORIES}/{new['id']}", params={"user_id": new_user})).json()
    assert (shown["state"], shown["superseded_by"]) == ("archived", again["id"])
    assert (await add("I live elsewhere.", status=404, supersedes=[str(uuid4())]))["error"] == "memory_not_found"


async def test_pairs_are_listed_and_decided(client, new_user, add):
    old, new = await add(OLD), await add(NEW)
    asked = {"user_id": new_user}
    listed = (await client.get(PATH, params=asked)).json()
    assert listed["total"] == 1
    [pair] = listed["items"]
    assert (pair["newer"]["id"], pair["older"]["id"], pair["replaces"]) == (new["id"], old["id"], True)
    body = asked | {"newer": new["id"][:8], "older": old["id"]}
    stale = await client.post(PATH, json=body | {"decision": "replace", "older_revision": 7})
    assert (stale.status_code, stale.json()["error"]) == (409, "changed_since")
    assert (await client.post(PATH, json=body | {"decision": "both"})).json()["message"] == "Kept both memories"
    assert (await client.get(PATH, params=asked)).json()["items"] == []
    done = (await client.post(PATH, json=body | {"decision": "replace"})).json()
    assert done["action"]
    shown = (await client.get(f"{MEMORIES}/{old['id']}", params=asked)).json()
    assert shown["superseded_by"] == new["id"]


async def test_a_search_marks_what_no_longer_holds(client, new_user, add):
    old, new = await add(OLD), await add(NEW)
    answer = await client.post(
        f"{MEMORIES}/search", json={"user_id": new_user, "query": "Where do I live, in Hamburg?"}
    )
    first, second = answer.json()["results"]
    assert (first["id"], first["older"], second["id"], second["newer"]) == (new["id"], old["id"], old["id"], new["id"])
    assert "newer" not in first
