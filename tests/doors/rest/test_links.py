"""Links between memories over REST: no cycles, and shown only where both ends may be read."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import uuid4

import httpx
import pytest

PATH = "/api/v1/links"


@pytest.fixture
def link(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(from_id: str, rel: str, to_id: str, *, status: int = 200, **fields: Any) -> Any:
        body = {"user_id": new_user, "from_id": from_id, "rel": rel, "to_id": to_id} | fields
        answer = await client.post(PATH, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


@pytest.fixture
def links(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(memory: str, *, status: int = 200, **params: str) -> Any:
        answer = await client.get(PATH, params={"user_id": new_user, "memory_id": memory} | params)
        assert answer.status_code == status, answer.text
        return [(one["direction"], one["rel"], one["id"]) for one in answer.json()["links"]] if status == 200 else None

    return ask


async def test_links_are_made_once_listed_from_both_ends_and_removed(client, new_user, remember, link, links):
    a, b, c = [(await remember(new_user, text))["id"] for text in ("one", "two", "three")]
    assert await link(a, "Depends  on", b) == {"from_id": a, "rel": "depends_on", "to_id": b, "created": True}
    assert not (await link(a, "depends_on", b))["created"]
    await link(c, "fixes", a)
    assert await links(a) == [("out", "depends_on", b), ("in", "fixes", c)]
    assert await links(b) == [("in", "depends_on", a)]
    which = {"user_id": new_user, "from_id": a, "rel": "depends_on", "to_id": b}
    assert (await client.request("DELETE", PATH, params=which)).json() == {"removed": True}
    assert (await client.request("DELETE", PATH, params=which)).json()["error"] == "link_not_found"
    assert await links(b) == []
    erased = {"user_id": new_user, "memory_ids": [c]}
    assert (await client.post("/api/v1/memories/actions/erase", json=erased)).is_success
    assert await links(a) == []


async def test_no_relation_forms_a_cycle(new_user, remember, link):
    ids = [(await remember(new_user, f"memory {number}"))["id"] for number in range(4)]
    for one, other in itertools.pairwise(ids):
        await link(one, "after", other)
    assert (await link(ids[3], "after", ids[0], status=409))["error"] == "link_cycle"
    await link(ids[3], "see", ids[0])  # another relation
    assert (await link(ids[0], "see", ids[0], status=422))["detail"].startswith("to_id")
    await link(ids[0], " ", ids[1], status=422)


@pytest.mark.slow
async def test_an_end_that_may_not_be_read_is_no_memory(client, new_user, remember, link, links):
    open_, hidden = await remember(new_user, "open", app="claude"), await remember(new_user, "hidden", app="cursor")
    await link(open_["id"], "see", hidden["id"])
    rule = {"user_id": new_user, "app": "claude", "effect": "deny", "object_type": "app", "object": "cursor"}
    assert (await client.post("/api/v1/grants", json=rule)).is_success
    assert await links(open_["id"], app="claude") == []
    await links(hidden["id"], app="claude", status=404)
    for other in (hidden["id"], str(uuid4()), (await remember(f"{new_user}-other", "theirs"))["id"]):
        refused = await link(open_["id"], "near", other, app="claude", status=404)
        assert refused["error"] == "memory_not_found"
    assert await links(open_["id"]) == [("out", "see", hidden["id"])]


async def test_a_memory_takes_the_place_of_another(client, new_user, remember):
    old, new = [(await remember(new_user, text))["id"] for text in ("The shop opens at nine.", "It opens at ten.")]
    whose, path = {"user_id": new_user}, "/api/v1/memories/actions/supersede"
    for body, status in (
        ({"memory_id": old, "by": old}, 422), ({"memory_id": old, "by": str(uuid4())}, 404),
        ({"memory_id": old[:8], "by": new[:8]}, 200), ({"memory_id": old, "by": new}, 404),
    ):  # fmt: skip
        assert (await client.post(path, json=whose | body)).status_code == status
    gone = (await client.get(f"/api/v1/memories/{old}", params=whose)).json()
    assert (gone["state"], gone["superseded_by"]) == ("archived", new)
    found = (await client.post("/api/v1/memories/search", json=whose | {"query": "when does the shop open?"})).json()
    assert [one["id"] for one in found["results"]] == [new]
    restored = await client.post("/api/v1/memories/actions/restore", json=whose | {"memory_ids": [old]})
    assert restored.is_success
