"""A credential with the scope `admin` administers within its bounds, and what has no bounds it does not administer."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.principal import LOCAL, Principal, Scope

MODEL = {"provider": "openai", "config": {"model": "m", "temperature": 0.1, "max_tokens": 2000}}
EMBEDDER = {"provider": "local", "config": {"model": "all-MiniLM-L6-v2-int8"}}
WHOLE_SERVICE: list[tuple[str, str, Any]] = [
    ("GET", "/api/v1/config", None),
    ("PUT", "/api/v1/config", {"openmemory": {"custom_instructions": None}}),
    ("PATCH", "/api/v1/config", {"openmemory": {"custom_instructions": None}}),
    ("POST", "/api/v1/config/reset", None),
    ("POST", "/api/v1/config/test", {"mem0": {"llm": MODEL}}),
    ("GET", "/api/v1/config/mem0/llm", None),
    ("PUT", "/api/v1/config/mem0/llm", MODEL),
    ("GET", "/api/v1/config/mem0/embedder", None),
    ("PUT", "/api/v1/config/mem0/embedder", EMBEDDER),
    ("GET", "/api/v1/config/mem0/vector_store", None),
    ("PUT", "/api/v1/config/mem0/vector_store", {"provider": "qdrant", "config": {}}),
    ("GET", "/api/v1/config/openmemory", None),
    ("PUT", "/api/v1/config/openmemory", {"custom_instructions": None}),
    ("GET", "/api/v1/audit", None),
    ("POST", "/api/v1/sync", None),
    ("GET", "/api/v1/sync/runs", None),
    ("GET", "/api/v1/doctor", None),
    ("GET", "/api/v1/installation", None),
    ("POST", "/api/v1/installation", {"decision": "copied"}),
    ("GET", "/metrics", None),
]
KEYS = {"GET /api/v1/keys", "POST /api/v1/keys", "DELETE /api/v1/keys/{key_id}", "POST /api/v1/keys/{key_id}/rotate"}
BOUNDS: list[dict[str, Any]] = [
    {},
    {"app": "claude"},
    {"namespaces": ["work"]},
    {"everyone": True, "app": "claude"},
    {"everyone": True, "namespaces": ["work"]},
]


@pytest.fixture(scope="session")
async def locked(make_client):
    async with make_client(access={"require": "always"}) as http:
        yield http


@pytest.fixture
def admin(services, new_user):
    """Makes a key with the scope admin, and returns the header that shows it."""

    async def make(**about: Any) -> dict[str, str]:
        whose = {} if about.get("everyone") else {"user_id": new_user}
        given = {"name": "admin", "scopes": list(Scope)} | whose | about
        return {"X-API-Key": (await services.keys.create(LOCAL, KeyCreate.model_validate(given))).key}

    return make


async def test_every_operation_of_administrators_is_tried_here(locked, admin):
    """An operation is one of administrators if a key without the scope admin may not do it for its own user."""
    schema = (await locked.get("/openapi.json", headers=await admin())).json()
    named = {
        f"{method.upper()} {path}"
        for path, methods in schema["paths"].items()
        for method, operation in methods.items()
        if "`admin`" in operation.get("description", "") or path.startswith("/api/v1/config")
    }
    assert named - KEYS <= {f"{method} {path}" for method, path, _ in WHOLE_SERVICE}


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
async def test_what_concerns_everybody_is_refused_to_an_administrator_with_bounds(locked, admin, bounds):
    headers = await admin(**bounds)
    for method, path, body in WHOLE_SERVICE:
        answer = await locked.request(method, path, headers=headers, json=body)
        assert (answer.status_code, answer.json()["error"]) == (403, "admin_bounded"), (method, path, answer.text)
    ready = (await locked.get("/health/ready", headers=headers)).json()
    assert "version" not in str(ready)


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
async def test_pages_of_the_whole_service_are_closed_to_an_administrator_with_bounds(locked, admin, bounds):
    headers = await admin(**bounds)
    models = (await locked.get("/ui/settings/models", headers=headers)).text
    assert "bound to no user, app or namespace" in models
    assert "This page tells of all users" in (await locked.get("/ui/system", headers=headers)).text
    assert "Keys in force" in (await locked.get("/ui/settings/keys", headers=headers)).text


async def test_an_administrator_of_a_user_sees_what_was_done_with_that_user(locked, admin, new_user):
    headers = await admin()
    answer = await locked.get("/api/v1/audit", headers=headers, params={"user_id": new_user})
    assert answer.status_code == 200
    synced = await locked.post("/api/v1/sync", headers=headers, params={"user_id": new_user, "dry_run": True})
    assert synced.status_code in (200, 409)


def _wider(user: str) -> list[tuple[dict[str, Any], dict[str, Any], str]]:
    """The bounds of an administrator, a key that exceeds them, and the code of the refusal."""
    mine = {"user_id": user}
    return [
        ({}, {"everyone": True}, "user_not_allowed"),
        ({}, {"user_id": f"{user}-other"}, "user_not_allowed"),
        ({"app": "claude"}, mine, "app_not_allowed"),
        ({"app": "claude"}, mine | {"app": "cursor"}, "app_not_allowed"),
        ({"namespaces": ["work"]}, mine, "namespace_not_allowed"),
        ({"namespaces": ["work"]}, mine | {"namespaces": ["work", "home"]}, "namespace_not_allowed"),
        ({"everyone": True, "app": "claude"}, {"everyone": True}, "app_not_allowed"),
        ({"everyone": True, "namespaces": ["work"]}, mine, "namespace_not_allowed"),
        ({"scopes": ["admin"]}, mine | {"scopes": ["read", "admin"]}, "insufficient_scope"),
    ]


@pytest.mark.parametrize("case", range(len(_wider(""))))
async def test_an_administrator_with_bounds_makes_replaces_and_ends_no_key_beyond_them(
    locked, admin, services, new_user, case
):
    bounds, wider, code = _wider(new_user)[case]
    headers = await admin(**bounds)
    wider = {"name": "wider", "scopes": list(Scope)} | wider
    made = await locked.post("/api/v1/keys", headers=headers, json=wider)
    assert (made.status_code, made.json()["error"]) == (403, code)
    there = await services.keys.create(LOCAL, KeyCreate.model_validate(wider))
    listed = (await locked.get("/api/v1/keys", headers=headers)).json()["keys"]
    assert (str(there.id) in {key["id"] for key in listed}) == (code == "insufficient_scope")
    rotated = await locked.post(f"/api/v1/keys/{there.id}/rotate", headers=headers)
    if code == "insufficient_scope":
        assert (rotated.status_code, rotated.json()["error"]) == (403, code)
    else:
        unknown = await locked.post(f"/api/v1/keys/{uuid4()}/rotate", headers=headers)
        assert (rotated.status_code, rotated.json()) == (unknown.status_code, unknown.json()) == (404, rotated.json())
        assert (await locked.delete(f"/api/v1/keys/{there.id}", headers=headers)).status_code == 404
    assert await services.keys.find(there.key) is not None
    assert not re.search(f"{new_user}-other", str(listed))


@pytest.mark.parametrize("bounds", BOUNDS[:3], ids=str)
async def test_an_administrator_with_bounds_manages_the_keys_within_them(locked, admin, new_user, bounds):
    headers = await admin(**bounds)
    narrow = {"name": "narrow", "user_id": new_user, "app": "claude", "namespaces": ["work"], "scopes": ["read"]}
    made = (await locked.post("/api/v1/keys", headers=headers, json=narrow)).json()
    rotated = await locked.post(f"/api/v1/keys/{made['id']}/rotate", headers=headers)
    assert rotated.status_code == 201
    listed = (await locked.get("/api/v1/keys", headers=headers)).json()["keys"]
    assert {"admin", "narrow"} == {key["name"] for key in listed}
    assert (await locked.delete(f"/api/v1/keys/{rotated.json()['id']}", headers=headers)).status_code == 200


async def test_an_administrator_that_the_settings_name_is_not_bound_by_their_token(services, new_user):
    named = Principal("token:x", "token", user="root", administrator=True)
    made = await services.keys.create(named, KeyCreate(name="k", user_id=new_user))
    await services.keys.revoke(named, made.id)
    other = Principal("token:x", "token", user="root")
    with pytest.raises(Forbidden):
        await services.keys.create(other, KeyCreate(name="k", user_id=new_user))
    with pytest.raises(NotFound):
        await services.keys.revoke(other, made.id)
