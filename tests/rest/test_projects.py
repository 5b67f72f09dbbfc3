"""Projects over REST: registered, listed with what the caller may read, and deleted with all that is in them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.rest.test_grants import GRANTS

PATH = "/api/v1/projects"


@pytest.fixture
async def project(client: httpx.AsyncClient, new_user: str, remember: Any) -> str:
    """A project with something of each kind, by two apps."""
    await remember(new_user, "The outbox delivers.", namespace="acme/shop", app="cursor")
    await remember(new_user, "The shop sells tea.", namespace="acme/shop", app="claude")
    await remember(new_user, "Something else.")
    whose = {"user_id": new_user, "app": "cursor", "namespace": "acme/shop"}
    for path, body in (
        ("threads/t/messages", {"messages": [{"content": "Hello."}]}),
        ("files/batch", {"files": [{"path": "a.md", "text": "# Tea\n"}]}),
        ("state/checkpoint", {"state": {"goal": "tea"}, "reason": "It begins."}),
    ):
        answer = await client.post(f"/api/v1/{path}", json=whose | body)
        assert answer.is_success, answer.text
    return "acme/shop"


async def test_a_project_is_registered_listed_and_shown(client, new_user, project):
    whose = {"user_id": new_user}
    listed = (await client.get(PATH, params=whose)).json()["projects"]
    assert [(one["namespace"], one["name"], one["memories"]) for one in listed] == [
        ("acme/shop", None, 4), ("default", None, 1),
    ]  # fmt: skip
    new = whose | {"namespace": project, "name": "The shop", "branch": "main"}
    made = (await client.post(PATH, json=new)).json()
    assert (made["name"], made["branch"], made["conversations"], made["files"]) == ("The shop", "main", 1, 1)
    again = (await client.post(PATH, json=whose | {"namespace": project, "head": "f00"})).json()
    assert (again["name"], again["branch"], again["head"]) == ("The shop", "main", "f00")
    shown = (await client.get(f"{PATH}/{project}", params=whose)).json()
    assert (shown["project"]["name"], shown["state_revision"], shown["state_reason"]) == ("The shop", 1, "It begins.")
    secret = whose | {"namespace": project, "repo": "https://ghp_" + "a1B2c3D4e5F6" * 3 + "@github.com/acme/shop"}
    assert "ghp_" not in (await client.post(PATH, json=secret)).text
    empty = (await client.post(PATH, json=whose | {"namespace": "new"})).json()
    assert (empty["name"], empty["memories"]) == ("new", 0)


async def test_what_an_app_may_not_read_counts_for_nothing(client, new_user, project):
    whose = {"user_id": new_user}
    await client.post(PATH, json=whose | {"namespace": project, "name": "The secret shop", "app": "cursor"})
    rule = whose | {"app": "claude", "effect": "deny", "object_type": "app", "object": "cursor"}
    assert (await client.post(GRANTS, json=rule)).is_success
    asking = whose | {"app": "claude"}
    [mine, *_] = (await client.get(PATH, params=asking)).json()["projects"]
    assert (mine["name"], mine["memories"], mine["files"]) == (None, 1, 0)
    refused = await client.post(PATH, json=asking | {"namespace": project, "name": "Mine"})
    assert (refused.status_code, refused.json()["error"]) == (404, "project_not_found")
    rule = whose | {"app": "claude", "effect": "deny", "object_type": "namespace", "object": project}
    assert (await client.post(GRANTS, json=rule)).is_success
    assert (await client.get(f"{PATH}/{project}", params=asking)).json()["error"] == "project_not_found"


async def test_a_project_is_deleted_with_all_that_is_in_it(client, new_user, project):
    whose = {"user_id": new_user}
    await client.post(PATH, json=whose | {"namespace": project, "name": "The shop"})
    gone = (await client.delete(f"{PATH}/{project}", params=whose)).json()
    assert gone == {"namespace": project, "memories": 4, "passages": 2}
    assert [one["namespace"] for one in (await client.get(PATH, params=whose)).json()["projects"]] == ["default"]
    assert (await client.get("/api/v1/sources", params=whose)).json()["total"] == 0
    assert (await client.delete(f"{PATH}/{project}", params=whose)).json()["error"] == "project_not_found"
    back = await client.post("/api/v1/threads/t/restore", json=whose)
    assert back.is_success


@pytest.mark.parametrize(
    ("fields", "field"), [({"namespace": ""}, "namespace"), ({"name": " "}, "name"), ({"root": "a\x00"}, "root")]
)
async def test_bad_input_is_refused(client, new_user, fields, field):
    answer = await client.post(PATH, json={"user_id": new_user, "namespace": "shop"} | fields)
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith(field)
