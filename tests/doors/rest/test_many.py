"""Changes of many memories at once, and earlier times, over REST."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

M = "/api/v1/memories"
CHANGE = f"{M}/actions/change"
TIMELINE = "/api/v1/timeline"


async def _texts(client: httpx.AsyncClient, user: str, state: str = "active") -> set[str]:
    listed = await client.get(M, params={"user_id": user, "state": state})
    return {one["content"] for one in listed.json()["items"]}


async def test_all_that_match_are_changed_and_that_is_undone(client, new_user, remember) -> None:
    for text, namespace in (("tea", "shop"), ("coffee", "shop"), ("water", "default")):
        await remember(new_user, text, namespace=namespace)
    whose = {"user_id": new_user}
    matching = whose | {"everything": True, "namespaces": ["shop"], "contains": "TEA", "to": "archived"}
    changed = (await client.post(CHANGE, json=matching)).json()
    assert changed["changed"] == 1
    assert await _texts(client, new_user, "archived") == {"tea"}
    undo = whose | {"action": changed["action"]}
    assert (await client.post(f"{M}/actions/undo", json=undo)).json() == {"restored": 1, "kept": 0}
    assert await _texts(client, new_user) == {"tea", "coffee", "water"}
    filed = whose | {"everything": True, "app": "nobody", "add_category": "drinks"}
    assert (await client.post(CHANGE, json=filed)).status_code == 404
    filed = (await client.post(CHANGE, json=filed | {"app": "openmemory"})).json()
    assert filed["changed"] == 3
    again = (await client.post(CHANGE, json=whose | {"everything": True, "add_category": "drinks"})).json()
    assert again == {"changed": 0, "action": None}
    paused = whose | {"everything": True, "categories": ["Drinks"], "only": "unread", "to": "paused"}
    assert (await client.post(CHANGE, json=paused)).json()["changed"] == 3


@pytest.mark.parametrize("field", ["states", "namespaces", "threads", "kinds", "categories", "contains"])
async def test_a_filter_that_is_empty_is_refused_and_not_taken_for_none(client, new_user, remember, field) -> None:
    await remember(new_user, "tea")
    everything = {"user_id": new_user, "everything": True, "to": "erased"}
    answer = await client.post(CHANGE, json=everything | {field: "" if field == "contains" else []})
    assert (answer.status_code, answer.json()["detail"]) == (
        422,
        f"{field}: must not be empty; leave it out to mean any",
    )
    assert await _texts(client, new_user) == {"tea"}


async def test_named_memories_expire_never_expire_and_are_erased(client, new_user, remember) -> None:
    one, two = [(await remember(new_user, text))["id"] for text in ("one", "two")]
    named = {"user_id": new_user, "memory_ids": [one[:13], two]}
    assert (await client.post(CHANGE, json=named | {"ttl_days": 3})).json()["changed"] == 2
    ends = (await client.get(f"{M}/{one}", params={"user_id": new_user})).json()["expires_at"]
    assert timedelta(days=2) < datetime.fromisoformat(ends) - datetime.now(UTC) < timedelta(days=4)
    assert (await client.post(CHANGE, json=named | {"never_expire": True})).json()["changed"] == 2
    assert (await client.get(f"{M}/{one}", params={"user_id": new_user})).json()["expires_at"] is None
    erased = {"user_id": new_user, "memory_ids": [one], "to": "erased"}
    assert (await client.post(CHANGE, json=erased)).json() == {"changed": 1, "action": None}
    assert await _texts(client, new_user) == {"two"}
    assert (await client.post(CHANGE, json=erased)).status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"to": "paused"}, "memory_ids: must name at least one memory, or everything must be true"),
        ({"memory_ids": [], "to": "paused"}, "memory_ids: must name at least one memory"),
        (
            {"everything": True, "memory_ids": ["6f1c2d9e"], "to": "paused"},
            "memory_ids: must be left out where everything or a filter is given",
        ),
        ({"kinds": ["note"], "memory_ids": ["6f1c2d9e"], "to": "paused"}, "memory_ids: must be left out where"),
        ({"everything": True}, "to: or add_category, expires_at, ttl_days or never_expire must be given"),
        ({"everything": True, "to": "paused", "ttl_days": 3}, "only one of them"),
        ({"everything": True, "to": "gone"}, "to: input should be"),
        ({"everything": True, "to": "paused", "app": "a\x00"}, "app: must not contain control characters"),
        ({"everything": True, "to": "paused", "contains": "a\x00"}, "must not contain the NUL character"),
        ({"everything": True, "expires_at": "2099-01-01T00:00:00"}, "expires_at: must carry an offset"),
    ],
)
async def test_what_contradicts_itself_changes_nothing(
    client: httpx.AsyncClient, new_user: str, remember: Any, body: dict[str, Any], words: str
) -> None:
    await remember(new_user, "tea")
    refused = await client.post(CHANGE, json={"user_id": new_user} | body)
    assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert await _texts(client, new_user) == {"tea"}


async def test_an_earlier_day_and_what_changed_since_are_shown(client, new_user, remember) -> None:
    whose = {"user_id": new_user}
    day = datetime.now(UTC) - timedelta(days=3)
    old = (await remember(new_user, "the old tea", created_at=day.isoformat()))["id"]
    new = (await remember(new_user, "the new tea"))["id"]
    now = (await client.get(f"{TIMELINE}/memories", params=whose)).json()
    assert ([one["id"] for one in now["items"]], now["next"]) == ([new, old], None)
    today = datetime.now(UTC).date().isoformat()
    assert (await client.get(f"{TIMELINE}/memories", params=whose | {"at": today})).json()["items"] == now["items"]
    then = await client.get(f"{TIMELINE}/memories", params=whose | {"at": (day + timedelta(days=1)).isoformat()})
    assert [one["content"] for one in then.json()["items"]] == ["the old tea"]
    first = (await client.get(f"{TIMELINE}/memories", params=whose | {"size": 1})).json()
    rest = await client.get(f"{TIMELINE}/memories", params=whose | {"size": 1, "after": first["next"]})
    assert [one["id"] for one in rest.json()["items"]] == [old]
    await client.put(f"{M}/{new}", json=whose | {"memory_content": "the newest tea"})
    changes = (await client.get(f"{TIMELINE}/changes", params=whose)).json()["items"]
    assert [(one["what"], one["memory_id"]) for one in changes][:2] == [("changed", new), ("added", new)]
    assert (changes[0]["before"], changes[0]["content"]) == ("the new tea", "the newest tea")
    later = await client.get(f"{TIMELINE}/changes", params=whose | {"until": "2099-01-01"})
    assert (later.status_code, "until: must lie between" in later.json()["detail"]) == (422, True)
    wrong = await client.get(f"{TIMELINE}/memories", params=whose | {"after": "x"})
    assert (wrong.status_code, "after: must be the end of a page" in wrong.json()["detail"]) == (422, True)


async def test_an_app_sees_earlier_texts_only_as_far_as_it_may_read(client, new_user, remember) -> None:
    await remember(new_user, "private tea", namespace="private")
    await remember(new_user, "open tea")
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "namespace", "object": "private"}
    assert (await client.post("/api/v1/grants", json=rule)).is_success
    seen = await client.get(f"{TIMELINE}/memories", params={"user_id": new_user, "app": "cursor"})
    assert [one["content"] for one in seen.json()["items"]] == ["open tea"]
