"""A request that names no user means the user of its key, or the default user, whichever operation it is."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any
from uuid import uuid4

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from tests.backup.archives import Upstream

BY_CHOICE = {"GET /api/v1/keys", "POST /api/v1/keys", "GET /api/v1/audit", "POST /api/v1/sync"}
"""Without a user these mean all that the credential may see; a key says itself whose it is."""

UNTRIED = {
    "GET /api/v1/captures/{capture_id}", "POST /api/v1/captures/{capture_id}/undo",
    "GET /api/v1/categories/assign", "POST /api/v1/categories/assign",
}  # fmt: skip
"""They need a language model, or a service that assigns categories."""

M, A, G, P = "/api/v1/memories", "/api/v1/apps/{app}", "/api/v1/grants", "/api/v1/archive-policies"
C = "/api/v1/categories"
T = "/api/v1/threads/{thread_id}"
D = "/api/v1/documents"
V, L = "/api/v1/values", "/api/v1/links"
IDS = {"memory_ids": ["{memory}"]}
R = "/api/v1/replacements"
REQUESTS: dict[str, tuple[str, dict[str, Any] | None]] = {
    f"GET {M}/search": (f"{M}/search?query=coffee", None),
    f"POST {M}/search": (f"{M}/search", {"query": "coffee"}),
    "POST /api/v1/brief": ("/api/v1/brief", {}),
    f"POST {M}/batch": (f"{M}/batch", {"memories": [{"text": "{fresh}"}]}),
    f"GET {M}": (M, None),
    f"POST {M}": (M, {"text": "{fresh}", "infer": False}),
    f"DELETE {M}": (M, IDS),
    f"POST {M}/filter": (f"{M}/filter", {}),
    f"GET {M}/categories": (f"{M}/categories", None),
    f"GET {M}/{{memory_id}}": (f"{M}/{{memory}}", None),
    f"PUT {M}/{{memory_id}}": (f"{M}/{{memory}}", {"memory_content": "{fresh}"}),
    f"GET {M}/{{memory_id}}/history": (f"{M}/{{memory}}/history", None),
    f"GET {M}/{{memory_id}}/related": (f"{M}/{{memory}}/related", None),
    f"GET {M}/{{memory_id}}/access-log": (f"{M}/{{memory}}/access-log", None),
    f"POST {M}/actions/archive": (f"{M}/actions/archive", IDS),
    f"POST {M}/actions/pause": (f"{M}/actions/pause", IDS),
    f"POST {M}/actions/restore": (f"{M}/actions/restore", IDS),
    f"POST {M}/actions/erase": (f"{M}/actions/erase", IDS),
    f"POST {M}/actions/supersede": (f"{M}/actions/supersede", {"memory_id": "{memory}", "by": "{other}"}),
    "GET /api/v1/threads": ("/api/v1/threads", None),
    f"POST {T}/messages": ("/api/v1/threads/{thread}/messages", {"messages": [{"content": "{fresh}"}]}),
    f"GET {T}/messages": ("/api/v1/threads/{thread}/messages", None),
    f"POST {T}/close": ("/api/v1/threads/{thread}/close", {}),
    f"DELETE {T}": ("/api/v1/threads/{thread}", None),
    f"POST {T}/restore": ("/api/v1/threads/{deleted_thread}/restore", {}),
    f"POST {T}/erase": ("/api/v1/threads/{thread}/erase", {}),
    "GET /api/v1/sources": ("/api/v1/sources", None),
    "POST /api/v1/context": ("/api/v1/context", {"query": "coffee"}),
    "GET /api/v1/context/usage": ("/api/v1/context/usage", None),
    "GET /api/v1/bundles": ("/api/v1/bundles", None),
    "POST /api/v1/bundles": (
        "/api/v1/bundles", {"namespace": "default", "bundle": {"manifest": {"source_repo_id": "x"}}},
    ),
    "GET /api/v1/anchors": (f"/api/v1/anchors?head={'a' * 40}", None),
    "POST /api/v1/anchors": ("/api/v1/anchors", {"head": "a" * 40}),
    "POST /api/v1/state/checkpoint": ("/api/v1/state/checkpoint", {"state": {"a": 1}, "reason": "{fresh}"}),
    "GET /api/v1/state": ("/api/v1/{state}", None),
    "GET /api/v1/state/history": ("/api/v1/{state}/history", None),
    "GET /api/v1/projects": ("/api/v1/projects", None),
    "POST /api/v1/projects": ("/api/v1/projects", {"namespace": "default", "name": "The house"}),
    "GET /api/v1/projects/{namespace}": ("/api/v1/projects/default", None),
    "POST /api/v1/projects/actions/check": ("/api/v1/projects/actions/check", {"namespace": "default"}),
    "POST /api/v1/projects/actions/move": ("/api/v1/projects/actions/move", {"namespace": "default", "to": "{fresh}"}),
    "DELETE /api/v1/projects/{namespace}": ("/api/v1/projects/default", None),
    "PUT /api/v1/values": (V, {"topic": "tea", "key": "{fresh}", "value": "green"}),
    "GET /api/v1/values": (V, None),
    f"GET {V}/{{topic}}/{{key}}": (f"{V}/tea/{{value}}", None),
    f"DELETE {V}/{{topic}}/{{key}}": (f"{V}/tea/{{value}}", None),
    "POST /api/v1/links": (L, {"from_id": "{other}", "rel": "{fresh}", "to_id": "{memory}"}),
    "GET /api/v1/links": (f"{L}?memory_id={{memory}}", None),
    "DELETE /api/v1/links": (f"{L}?from_id={{memory}}&rel={{link}}&to_id={{other}}", None),
    "GET /api/v1/sessions": ("/api/v1/sessions", None),
    "POST /api/v1/sessions": ("/api/v1/sessions", {"number": 1, "title": "{fresh}"}),
    "GET /api/v1/sessions/{number}": ("/api/v1/sessions/{session}", None),
    "GET /api/v1/files": ("/api/v1/files", None),
    "GET /api/v1/documents": (D, None),
    "POST /api/v1/documents": (D, None),
    f"GET {D}/{{document_id}}": (f"{D}/{{document}}", None),
    f"GET {D}/{{document_id}}/original": (f"{D}/{{document}}/original", None),
    f"DELETE {D}/{{document_id}}": (f"{D}/{{document}}", None),
    f"POST {D}/{{document_id}}/restore": (f"{D}/{{deleted_document}}/restore", {}),
    f"POST {D}/{{document_id}}/erase": (f"{D}/{{document}}/erase", {}),
    "POST /api/v1/files/plan": ("/api/v1/files/plan", {"files": [{"path": "a.md", "hash": "h"}]}),
    "POST /api/v1/files/batch": ("/api/v1/files/batch", {"files": [{"path": "{fresh}.md", "text": "tea"}]}),
    "POST /api/v1/files/finish": ("/api/v1/files/finish", {"gone": ["a.md"]}),
    "GET /api/v1/captures": ("/api/v1/captures", None),
    "GET /api/v1/captures/usage": ("/api/v1/captures/usage", None),
    f"POST {G}": (G, {"effect": "deny", "object_type": "namespace", "object": "{fresh}"}),
    f"GET {G}": (G, None),
    f"GET {G}/explain": (f"{G}/explain?app=openmemory&memory_id={{memory}}", None),
    f"DELETE {G}/{{grant_id}}": (f"{G}/{{grant}}", None),
    f"POST {P}": (P, {"criteria_type": "category", "criteria_name": "{fresh}", "days_to_archive": 9}),
    f"GET {P}": (P, None),
    f"GET {P}/upcoming": (f"{P}/upcoming", None),
    f"DELETE {P}/{{policy_id}}": (f"{P}/{{policy}}", None),
    f"GET {C}/assign/preview": (f"{C}/assign/preview", None),
    f"GET {C}": (C, None),
    f"PUT {C}/{{name}}": (f"{C}/{{category}}", {"description": "what a test describes"}),
    f"DELETE {C}/{{name}}": (f"{C}/{{category}}", None),
    "POST /api/v1/backup/export": ("/api/v1/backup/export", {}),
    "POST /api/v1/backup/import": ("/api/v1/backup/import", None),
    "POST /api/v1/imports": ("/api/v1/imports", None),
    f"POST {M}/actions/change": (f"{M}/actions/change", IDS | {"to": "paused"}),
    "GET /api/v1/timeline/memories": ("/api/v1/timeline/memories", None),
    "GET /api/v1/timeline/changes": ("/api/v1/timeline/changes", None),
    "GET /api/v1/apps": ("/api/v1/apps", None),
    "GET /api/v1/apps/{app_id}": (A, None),
    "PUT /api/v1/apps/{app_id}": (f"{A}?is_active=true", None),
    "GET /api/v1/apps/{app_id}/memories": (f"{A}/memories", None),
    "GET /api/v1/apps/{app_id}/accessed": (f"{A}/accessed", None),
    "GET /api/v1/stats": ("/api/v1/stats", None),
    "GET /api/v1/me/timezone": ("/api/v1/me/timezone", None),
    "PUT /api/v1/me/timezone": ("/api/v1/me/timezone", {"timezone": None}),
    "GET /api/v1/stats/daily": ("/api/v1/stats/daily", None),
    "GET /api/v1/stats/tools": ("/api/v1/stats/tools", None),
    "GET /api/v1/feed": ("/api/v1/feed", None),
    "GET /api/v1/conflicts": ("/api/v1/conflicts", None),
    "POST /api/v1/conflicts": ("/api/v1/conflicts", {"key": "port", "keep": "{fact}", "others": ["{another_fact}"]}),
    "GET /api/v1/duplicates": ("/api/v1/duplicates", None),
    "POST /api/v1/duplicates": ("/api/v1/duplicates", {"newer": "{memory}", "older": "{other}", "keep": "both"}),
    f"POST {M}/actions/undo": (f"{M}/actions/undo", {"action": "{action}"}),
    f"GET {R}": (R, None),
    "POST /api/v1/slack/messages": (
        "/api/v1/slack/messages",
        {"channel": "general", "channel_id": "C1", "messages": [{"ts": "1767258000.000100", "text": "{fresh}"}]},
    ),
    "GET /api/v1/slack/channels": ("/api/v1/slack/channels", None),
    "DELETE /api/v1/slack/channels/{channel}": ("/api/v1/slack/channels/{channel}", None),
    "GET /api/v1/slack/search": ("/api/v1/slack/search?query=tea", None),
    f"POST {R}": (R, {"newer": "{memory}", "older": "{other}", "decision": "both"}),
}  # fmt: skip


async def _takes_a_user(client: Any) -> dict[str, bool]:
    """The operations with a `user_id` in query or body, and whether it must be given."""
    schema = (await client.get("/openapi.json")).json()
    found: dict[str, bool] = {}

    def resolved(part: dict[str, Any]) -> list[dict[str, Any]]:
        name = part.get("$ref", "").rpartition("/")[2]
        parts = [schema["components"]["schemas"][name]] if name else [part]
        return parts + [
            each for one in parts for any_ in ("anyOf", "oneOf") for o in one.get(any_, ()) for each in resolved(o)
        ]

    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            places = [
                p["required"] for p in operation.get("parameters", ()) if (p["name"], p["in"]) == ("user_id", "query")
            ]
            for content in operation.get("requestBody", {}).get("content", {}).values():
                bodies = [b for b in resolved(content["schema"]) if "user_id" in b.get("properties", {})]
                places += ["user_id" in body.get("required", ()) for body in bodies]
            if places:
                found[f"{method.upper()} {path}"] = any(places)
    return found


async def test_no_operation_needs_a_user_and_each_is_tried_here(client):
    found = await _takes_a_user(client)
    assert [operation for operation, required in found.items() if required] == []
    assert found.keys() == REQUESTS.keys() | BY_CHOICE | UNTRIED


class _Things(dict[str, str]):
    """The objects that a request names, by the name in its template. They are made without naming a user."""

    def __init__(self, client: Any, headers: dict[str, str]) -> None:
        super().__init__(fresh=uuid4().hex)
        self._client = client
        self._headers = headers

    async def make(self, name: str) -> None:
        """Make this one, unless it is there."""
        if name in self:
            return
        new = uuid4().hex
        match name:
            case "memory" | "other":
                memory = await self._sent("POST", M, json={"text": f"coffee {new}", "infer": False})
                self[name], self["app"] = memory["id"], memory["app_id"]
            case "fact" | "another_fact":
                # A batch does not merge facts.
                batch = await self._sent("POST", f"{M}/batch", json={"memories": [{"text": f"port={new}"}]})
                self[name] = batch["results"][0]["id"]
            case "action":
                await self.make("fact")
                await self.make("another_fact")
                decision = {"newer": self["another_fact"], "older": self["fact"], "keep": "newer"}
                self[name] = (await self._sent("POST", "/api/v1/duplicates", json=decision))["action"]
            case "app":
                await self.make("memory")
            case "link":
                await self.make("memory")
                await self.make("other")
                await self._sent("POST", L, json={"from_id": self["memory"], "rel": "is", "to_id": self["other"]})
                self[name] = "is"
            case "grant":
                body = {"effect": "deny", "object_type": "namespace", "object": f"ns-{new}"}
                self[name] = (await self._sent("POST", G, json=body))["id"]
            case "policy":
                body = {"criteria_type": "category", "criteria_name": f"cat-{new}", "days_to_archive": 7}
                self[name] = (await self._sent("POST", P, json=body))["id"]
            case "category":
                self[name] = f"cat-{new}"
                await self._sent("PUT", f"{C}/cat-{new}", json={"description": "a test's"})
            case "value":
                self[name] = new
                await self._sent("PUT", V, json={"topic": "tea", "key": new, "value": "black"})
            case "state":
                self[name] = "state"
                body = {"state": {"tea": new}, "reason": f"tea is {new}"}
                await self._sent("POST", "/api/v1/state/checkpoint", json=body)
            case "thread" | "deleted_thread":
                self[name] = f"thread-{new}"
                said = {"messages": [{"content": f"tea {new}"}]}
                await self._sent("POST", f"/api/v1/threads/thread-{new}/messages", json=said)
                if name == "deleted_thread":
                    await self._sent("DELETE", f"/api/v1/threads/thread-{new}")
            case "channel":
                self[name] = new
                said = {"channel": new, "channel_id": "C1", "messages": [{"ts": "1767258000.000100", "text": "tea"}]}
                await self._sent("POST", "/api/v1/slack/messages", json=said)
            case "session":
                number = secrets.randbelow(2**31)
                self[name] = str(number)
                await self._sent("POST", "/api/v1/sessions", json={"number": number, "title": "tea"})
            case "document" | "deleted_document":
                file = f"{new}.txt", f"tea {new}".encode()
                self[name] = (await self._sent("POST", D, files={"file": file}))["id"]
                if name == "deleted_document":
                    await self._sent("DELETE", f"{D}/{self[name]}")
            case _:
                raise KeyError(name)

    async def _sent(self, method: str, path: str, **sent: Any) -> Any:
        answer = await self._client.request(method, path, headers=self._headers, **sent)
        assert answer.is_success, answer.text
        return answer.json()


def _filled(value: Any, things: dict[str, str]) -> Any:
    if isinstance(value, str):
        return value.format(**things) if "{" in value else value
    if isinstance(value, list):
        return [_filled(each, things) for each in value]
    return {name: _filled(each, things) for name, each in value.items()} if isinstance(value, dict) else value


async def _asked(client: Any, operation: str, headers: dict[str, str]) -> set[str]:
    """Sends the request without a user and returns the users whom the audit log names for it."""
    path, body = REQUESTS[operation]
    things = _Things(client, headers)
    for name in sorted({"memory", *re.findall(r"\{(\w+)\}", json.dumps([path, body]))}):
        await things.make(name)
    request = uuid4().hex
    sent: dict[str, Any] = {"headers": headers | {"X-Request-ID": request}}
    if operation.endswith(("/import", "/imports")):
        sent["files"] = {"file": ("archive.zip", Upstream().zip())}
    elif operation == f"POST {D}":
        sent["files"] = {"file": ("a.txt", b"I like tea.")}
    elif body is not None:
        sent["json"] = _filled(body, things)
    answer = await client.request(operation.partition(" ")[0], _filled(path, things), **sent)
    assert answer.is_success, (operation, answer.text)
    events = (await client.get("/api/v1/audit", params={"limit": 200})).json()["events"]
    return {event["user_name"] for event in events if event["request"] == request}


@pytest.mark.parametrize("operation", REQUESTS)
async def test_without_a_user_the_default_user_is_meant_and_with_a_key_the_keys_user(
    client, services, new_user, operation
):
    assert await _asked(client, operation, {}) == {"default_user"}
    key = (await services.keys.create(LOCAL, KeyCreate(name="theirs", user_id=new_user))).key
    assert await _asked(client, operation, {"Authorization": f"Bearer {key}"}) == {new_user}


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", M, None), ("GET", "/api/v1/apps", None), ("GET", G, None), ("POST", M, {"text": "t"}),
        ("POST", f"{M}/batch", {"memories": [{"text": "t"}]}), ("POST", G, {"effect": "deny", "object_type": "all"}),
        ("POST", f"{M}/actions/archive", {"memory_ids": []}), ("POST", f"{C}/assign", {}),
        ("POST", P, {"criteria_type": "user", "days_to_archive": 9}), ("POST", "/api/v1/backup/export", {}),
    ],
)  # fmt: skip
async def test_a_blank_user_is_no_user_everywhere(client, method, path, body, blank):
    params = None if body is not None else {"user_id": blank}
    answer = await client.request(method, path, params=params, json=None if body is None else body | {"user_id": blank})
    assert answer.status_code == 404
    assert answer.json() == {
        "error": "user_not_found", "detail": "User not found",
        "hint": "user_id must not be blank; leave it out to mean the default user.",
    }  # fmt: skip


async def test_a_client_is_told_as_whom_it_asks(client, services, new_user):
    anybody = {"every_user": True, "every_app": True, "namespaces": None, "scopes": ["read", "write", "admin"]}
    assert (await client.get("/api/v1/me")).json() == {"user": "default_user", "app": "openmemory"} | anybody
    new = KeyCreate(name="theirs", user_id=new_user, app="claude", namespaces=["webshop"], scopes=["read"])
    headers = {"Authorization": f"Bearer {(await services.keys.create(LOCAL, new)).key}"}
    assert (await client.get("/api/v1/me", headers=headers)).json() == {
        "user": new_user, "app": "claude", "every_user": False, "every_app": False, "namespaces": ["webshop"],
        "scopes": ["read"],
    }  # fmt: skip
