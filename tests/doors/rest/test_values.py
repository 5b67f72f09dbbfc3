"""Values over REST: one for each topic and key, found by key and by meaning."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import pytest

PATH = "/api/v1/values"


@pytest.fixture
def call(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(method: str, path: str = "", *, status: int = 200, **fields: Any) -> Any:
        place = {"user_id": new_user, "namespace": "shop"} | fields
        if path == "/value":
            path = "/" + "/".join(
                quote(place.pop(name), safe="/" if name == "key" else "") for name in ("topic", "key")
            )
        sent = {"json": place} if method == "PUT" else {"params": place}
        answer = await client.request(method, PATH + path, **sent)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


async def test_a_value_is_set_read_replaced_listed_found_and_deleted(client, new_user, call):
    where = {"topic": "stack", "key": "database"}
    first = await call("PUT", **where, value="PostgreSQL 16")
    assert (first["event"], first["revision"]) == ("ADD", 1)
    assert (await call("PUT", **where, value="PostgreSQL 16")) == first | {"event": "NONE"}
    assert (await call("PUT", **where, value="PostgreSQL 17")) == first | {"event": "UPDATE", "revision": 2}
    found = await call("GET", "/value", **where)
    assert (found["topic"], found["key"], found["value"], found["revision"]) == (
        "stack",
        "database",
        "PostgreSQL 17",
        2,
    )
    await call("PUT", topic="stack", key="cache/main", value="PostgreSQL 17")  # equal values are two memories
    await call("PUT", topic="team", key="lead", value="Zoe leads the team.")
    listed = await call("GET")
    assert [(one["topic"], one["key"]) for one in listed["items"]] == [
        ("stack", "cache/main"), ("stack", "database"), ("team", "lead"),
    ]  # fmt: skip
    assert (await call("GET", topic="stack"))["total"] == 2
    assert (await call("GET", namespace="other"))["total"] == 0
    for query in ("stack/database", "who leads our team?"):
        body = {"user_id": new_user, "query": query, "kinds": ["keyed"], "namespace": "shop"}
        results = (await client.post("/api/v1/memories/search", json=body)).json()["results"]
        best = "stack/database: PostgreSQL 17" if "stack" in query else "team/lead: Zoe leads the team."
        assert results[0]["memory"] == best
    gone = await call("DELETE", "/value", **where)
    assert gone["id"] == first["id"]
    assert (await call("GET", "/value", **where, status=404))["error"] == "value_not_found"
    assert (await call("DELETE", "/value", **where, status=404))["error"] == "value_not_found"


async def test_topics_with_a_slash_stay_apart_from_keys_with_one(call):
    places = [("stack/db", "port"), ("stack", "db/port"), ("stack%2Fdb", "port"), ("100%", "sure"), ("a/", "/b")]
    for topic, key in places:
        done = await call("PUT", topic=topic, key=key, value=f"of {topic} and {key}")
        assert done["event"] == "ADD"
    for topic, key in places:
        found = await call("GET", "/value", topic=topic, key=key)
        assert (found["topic"], found["key"], found["value"]) == (topic, key, f"of {topic} and {key}")
        [listed] = (await call("GET", topic=topic))["items"]
        assert (listed["topic"], listed["key"]) == (topic, key)
    await call("DELETE", "/value", topic="stack/db", key="port")
    await call("GET", "/value", topic="stack/db", key="port", status=404)
    assert (await call("GET", "/value", topic="stack", key="db/port"))["value"] == "of stack and db/port"


async def test_a_value_may_be_longer_than_another_memory(call):
    value = "Long notes. " * 5_333
    assert 63_990 < len(value) < 64_000
    await call("PUT", topic="notes", key="long", value=value.strip())
    assert (await call("GET", "/value", topic="notes", key="long"))["value"] == value.strip()
    refused = await call("PUT", topic="notes", key="long", value="x" * 64_001, status=413)
    assert "limits.value" in str(refused)


@pytest.mark.slow
async def test_many_sets_of_a_key_at_once_leave_one_row(call):
    values = [f"value {number}" for number in range(32)]
    await asyncio.gather(*(call("PUT", topic="t", key="k", value=value, app=f"app{value[-1]}") for value in values))
    listed = await call("GET")
    assert listed["total"] == 1
    assert listed["items"][0]["value"] in values
    assert listed["items"][0]["revision"] == 32


async def deny(client, user, app, sort, name):
    rule = {"user_id": user, "app": app, "effect": "deny", "object_type": sort, "object": name}
    assert (await client.post("/api/v1/grants", json=rule)).is_success


async def test_a_value_that_a_rule_hides_is_neither_told_of_nor_replaced(client, new_user, call):
    await call("PUT", topic="t", key="k", value="private", app="cursor")
    await deny(client, new_user, "claude", "app", "cursor")
    assert (await call("GET", app="claude"))["total"] == 0
    await call("GET", "/value", topic="t", key="k", app="claude", status=404)
    await call("DELETE", "/value", topic="t", key="k", app="claude", status=404)
    free = await call("PUT", topic="t", key="free", value="x", app="claude")
    taken = await call("PUT", topic="t", key="k", value="x", app="claude")
    assert taken | {"id": free["id"]} == free, "a key that is taken looks like one that is free"
    assert taken | {"event": "UPDATE", "revision": 2} == await call("PUT", topic="t", key="k", value="y", app="claude")
    assert (await call("GET", "/value", topic="t", key="k", app="claude"))["value"] == "y"
    for app in ({"app": "cursor"}, {}):
        assert (await call("GET", "/value", topic="t", key="k", **app))["value"] == "private", "the first app's counts"
    assert [one["value"] for one in (await call("GET", topic="t"))["items"] if one["key"] == "k"] == ["y", "private"]
    assert (await call("PUT", topic="t", key="k", value="z"))["event"] == "UPDATE"
    assert [one["value"] for one in (await call("GET", topic="t"))["items"] if one["key"] == "k"] == ["z"]


async def test_an_app_sets_no_value_that_it_could_not_read(client, new_user, call):
    await call("PUT", topic="t", key="k", value="mine", app="claude")
    await deny(client, new_user, "claude", "namespace", "shop")
    for key, value in (("k", "mine"), ("k", "other"), ("free", "mine")):
        assert (await call("PUT", topic="t", key=key, value=value, app="claude", status=403))["error"] == "not_readable"
    assert [(one["key"], one["value"]) for one in (await call("GET"))["items"]] == [("k", "mine")]


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"topic": ""}, "topic"), ({"key": ""}, "key"), ({"key": "a\x00b"}, "key"),
        ({"value": ""}, "value"), ({"value": "ghp_" + "a1B2c3D4e5F6" * 3}, "value"), ({"namespace": ""}, "namespace"),
    ],
)  # fmt: skip
async def test_bad_input_is_refused(call, fields, field):
    refused = await call("PUT", **({"topic": "t", "key": "k", "value": "v"} | fields), status=422)
    assert refused["detail"].startswith(field), refused
    assert (await call("GET"))["total"] == 0
