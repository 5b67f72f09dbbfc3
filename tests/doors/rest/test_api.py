"""The REST API as a whole: its paths, its description, and what it answers to rubbish."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from openmemory.services import Services
from tests.doors.rest.rubbish import Rubbish, is_a_problem

RUBBISH: list[Any] = [
    None, True, "", " ", "\x00", "a\x00b", "é" * 300, "x" * 20_000, "default_user", "-1", "NaN", "1e999", 0, -1,
    10**30, -(10**400), 2**63, 1.5, 1e308, [], {}, [[]], [None], ["", "\x00"], {"a": {"b": ["\x00"]}}, {"\x00": 1},
    str(uuid4()), [str(uuid4())] * 3, "00000000-0000-0000-0000-000000000000", "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00", "2020-01-01T00:00:00", 253402300800, "desc", "active", "deleted", "' OR 1=1 --",
    "%00", "../..", "\u202e", "a,b,,c", ["default_user"] * 2000,
]  # fmt: skip
PARTS = 24
"""Each part has its share of the operations, and needs hundreds of requests, so no quick run sends them."""
METHODS = {"get", "post", "put", "delete"}


def operations(app: FastAPI) -> list[tuple[str, str, dict[str, Any]]]:
    """Every documented operation: method, path, description."""
    return [
        (method, path, operation)
        for path, item in app.openapi()["paths"].items()
        for method, operation in item.items()
        if method in METHODS
    ]


def good_body(operation: dict[str, Any]) -> Any:
    """The first documented example of an operation's body."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    return next(iter(content["examples"].values()))["value"] if content else None


@pytest.fixture(autouse=True)
async def put_back(client: httpx.AsyncClient, services: Services) -> AsyncIterator[None]:
    """What a test saves as configuration is gone after it, and so is what waits for a language model of it."""
    yield
    assert (await client.post("/api/v1/config/reset")).status_code == 200
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM captures WHERE status IN ('pending', 'failed')"))


GONE_AT_ONCE = {
    ("DELETE", "/api/v1/categories/{name}"),
    ("DELETE", "/api/v1/threads/{thread_id}"),
    ("POST", "/api/v1/threads/{thread_id}/restore"),
    ("POST", "/api/v1/threads/{thread_id}/erase"),
}


@pytest.mark.slow
async def test_every_path_answers_with_and_without_a_trailing_slash(client, rest_app):
    for method, path, operation in operations(rest_app):
        if path in {"/api/v1/sync", "/metrics", "/api/v1/backup/export"}:
            continue  # one would run twice, the others are no JSON; their own tests ask for each form
        if (method.upper(), path) in GONE_AT_ONCE:
            continue  # what was made a moment ago is gone by the first form
        url, body = path.replace("{memory_id}", str(uuid4())).replace("{", "").replace("}", ""), good_body(operation)
        plain = await client.request(method, url, json=body)
        slash = await client.request(method, url + "/", json=body)
        assert plain.status_code == slash.status_code, path
        one, other = plain.json() or {}, slash.json() or {}  # no vector store is configured: null
        assert one.keys() == other.keys(), path
        assert one.get("detail") != "Not Found", path


async def test_nothing_is_redirected(client):
    answer = await client.get("/api/v1/nothing/")
    assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_another_method_is_refused_with_those_that_are_allowed(client):
    answer = await client.patch("/api/v1/memories")
    assert (answer.status_code, answer.json()["error"]) == (405, "method_not_allowed")
    assert answer.headers["allow"] == "DELETE, GET, POST"
    for path, allowed in (
        ("/api/v1/keys/", "GET, POST"), (f"/api/v1/memories/{uuid4()}", "GET, PUT"),
        ("/api/v1/memories/categories", "GET"), ("/api/v1/memories/filter", "POST"),
    ):  # fmt: skip
        assert (await client.patch(path)).headers["allow"] == allowed


def test_every_operation_is_described(rest_app):
    schema = rest_app.openapi()
    ids = [operation["operationId"] for _, _, operation in operations(rest_app)]
    assert len(ids) == len(set(ids)) >= 20
    for _, path, operation in operations(rest_app):
        assert operation["description"], path
        assert operation["tags"], path
        assert operation["responses"]["422"]["content"]["application/json"]["schema"]["$ref"].endswith(
            ("/Problem", "/BatchProblem")
        )
        if "application/json" in operation.get("requestBody", {}).get("content", {}):
            assert good_body(operation), path
    assert "HTTPValidationError" not in schema["components"]["schemas"]
    assert {"bearer": []} in schema["security"]
    assert not [path for path in schema["paths"] if path.endswith("/")]


def address(path: str) -> str:
    """The address of what is not there."""
    return path.replace("{memory_id}", str(uuid4())).replace("{", "").replace("}", "")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_rubbish_in_any_field_of_any_body_is_no_failure_of_ours(client, rest_app, new_user, part):
    rubbish = Rubbish(rest_app, client)
    schema = rest_app.openapi()["components"]["schemas"]
    with_body = [one for one in operations(rest_app) if good_body(one[2]) not in (None, [])]
    for method, path, operation in with_body[part::PARTS]:
        good = good_body(operation)
        if not isinstance(good, dict):
            good = {"memory_ids": good, "user_id": new_user}
        ref = operation["requestBody"]["content"]["application/json"]["schema"].get("$ref", "/MemoriesOfUser")
        for field in schema[ref.rpartition("/")[2]]["properties"]:
            for value in RUBBISH:
                body = good | {"user_id": new_user} | {field: value}
                await rubbish.send(method, path, field, address(path), body=body)
    assert rubbish.asked["model"] > rubbish.asked["HTTP"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_rubbish_in_any_parameter_is_no_failure_of_ours(client, rest_app, new_user, remember, part):
    rubbish = Rubbish(rest_app, client)
    await remember(new_user, "something")
    with_parameters = [one for one in operations(rest_app) if one[1] != "/api/v1/sync" and one[2].get("parameters")]
    for method, path, operation in with_parameters[part::PARTS]:
        body = good_body(operation)
        for parameter in operation["parameters"]:
            name = parameter["name"]
            for value in map(str, RUBBISH):
                url, params = path, {"user_id": new_user, "query": "q"}
                if parameter["in"] == "path":
                    url = path.replace("{" + name + "}", quote(value, safe=""))
                else:
                    params[name] = value
                await rubbish.send(method, path, name, address(url), params=params, body=body)
    assert rubbish.asked["HTTP"] > 0  # some operations take any text in every parameter


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.sampled_from([value for value in RUBBISH if not isinstance(value, dict | list)]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
async def test_invented_bodies_are_no_failure_of_ours(client, rest_app, data):
    with_body = [entry for entry in operations(rest_app) if "requestBody" in entry[2]]
    method, path, operation = data.draw(st.sampled_from(with_body))
    good = good_body(operation)
    changes = st.dictionaries(st.sampled_from(sorted(good)), ANY_JSON) if isinstance(good, dict) else st.just({})
    body = data.draw(ANY_JSON | changes.map(lambda changed: {**good, **changed} if isinstance(good, dict) else good))
    answer = await client.request(method, path.replace("{memory_id}", str(uuid4())), json=body)
    assert answer.status_code < 500, answer.text
    assert answer.is_success or is_a_problem(answer), answer.text


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(path=st.binary(max_size=20), query=st.binary(max_size=30))
async def test_invented_bytes_in_the_address_are_no_failure_of_ours(rest_app, path, query):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    base = "/api/v1/memories/"
    scope = {
        "type": "http", "method": "GET", "scheme": "http", "http_version": "1.1", "root_path": "",
        "path": base + path.decode("utf-8", "replace"), "raw_path": base.encode() + path,
        "query_string": b"user_id=" + query, "headers": [(b"host", b"localhost")],
        "server": ("localhost", 8765), "client": ("127.0.0.1", 1),
    }  # fmt: skip
    await rest_app(scope, receive, send)
    assert sent[0]["status"] < 500
