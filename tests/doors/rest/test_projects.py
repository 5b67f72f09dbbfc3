"""Projects over REST: registered, listed with what the caller may read, and deleted with all that is in them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from openmemory.memories import changes
from openmemory.memories.schemas import CheckedMemory, MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from tests.doors.rest.test_grants import GRANTS

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
    slashed = (await client.get(f"{PATH}/{project}/", params=whose)).json()
    assert slashed | {"pending": 0} == shown | {"pending": 0}  # vectors are delivered meanwhile
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
    made = await client.post(PATH, json=asking | {"namespace": project, "name": "Mine"})
    assert (made.status_code, made.json()["name"]) == (200, "Mine")
    rule = whose | {"app": "claude", "effect": "deny", "object_type": "namespace", "object": project}
    assert (await client.post(GRANTS, json=rule)).is_success
    assert (await client.get(f"{PATH}/{project}", params=asking)).json()["error"] == "project_not_found"


@pytest.fixture
def register(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(app: str, namespace: str, status: int = 200, **fields: Any) -> httpx.Response:
        body = {"user_id": new_user, "app": app, "namespace": namespace} | fields
        answer = await client.post(PATH, json=body)
        assert answer.status_code == status, answer.text
        return answer

    return send


@pytest.fixture
def deny(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(app: str, object_: str, object_type: str = "app") -> None:
        rule = {"effect": "deny", "object_type": object_type, "object": object_, "app": app}
        assert (await client.post(GRANTS, json={"user_id": new_user} | rule)).is_success

    return send


@pytest.fixture
def names(get: Any) -> Any:
    async def read(*apps: str | None) -> list[dict[str, str | None]]:
        listed = [await get("projects", **({"app": app} if app else {})) for app in apps]
        return [{one["namespace"]: one["name"] for one in each["projects"]} for each in listed]

    return read


def whole(answer: httpx.Response) -> Any:
    """All that an answer says, but for what differs between any two: its time, id and length of the time."""
    said = answer.json()
    if "updated_at" in said:
        said["updated_at"] = said["updated_at"] is not None
    headers = {name: value for name, value in answer.headers.items() if name not in ("date", "x-request-id")}
    headers.pop("content-length")
    return answer.status_code, said, headers


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"name": "Mine", "branch": "main"}, {}, {"head": "f" * 40}])
async def test_a_registration_that_is_hidden_looks_like_one_that_is_not_there(register, deny, get, names, fields):
    await register("cursor", "old1", name="The secret shop", root="/secret", branch="secret", head="e" * 40)
    await deny("claude", "cursor")
    for _ in range(2):
        taken, free = [whole(await register("claude", name, **fields)) for name in ("old1", "new1")]
        assert repr(taken).replace("old1", "new1") == repr(free)
    expected = {"name": "old1", "root": None, "repo": None, "branch": None, "head": None} | fields
    shown = (await get("projects/old1", app="claude"))["project"]
    assert {name: shown[name] for name in expected} == expected
    mine, first, owner = await names("claude", "cursor", None)
    assert (mine["old1"], first["old1"], owner["old1"]) == (expected["name"], "The secret shop", "The secret shop")
    # A caller who may read both registrations gets the older one, and changes it.
    await register("notes", "old1", name="Of both")
    assert [each["old1"] for each in await names("claude", "cursor", "notes", None)] == [
        expected["name"], "Of both", "Of both", "Of both",
    ]  # fmt: skip


async def test_an_app_registers_nothing_that_it_could_not_read_whether_or_not_it_is_there(register, deny, names):
    await register("claude", "old1", name="Mine")
    await register("cursor", "old2", name="Theirs")
    for name in ("old1", "old2", "new1"):
        await deny("claude", name, "namespace")
    answers = [whole(await register("claude", name, 403, name="Other")) for name in ("old1", "old2", "new1")]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0][1]["error"] == "not_readable"
    assert await names(None) == [{"old1": "Mine", "old2": "Theirs"}]


async def test_many_registrations_at_once_make_one(client, new_user, register, services):
    await asyncio.gather(*(register(f"app{number % 4}", "shop", name=f"Name {number}") for number in range(16)))
    [shop] = (await client.get(PATH, params={"user_id": new_user})).json()["projects"]
    assert shop["name"].startswith("Name ")
    query = text("SELECT count(*) FROM projects AS p JOIN users AS u ON u.id = p.user_id WHERE u.user_id = :user")
    async with services.database.statement() as tx:
        assert await tx.scalar(query, {"user": new_user}) == 1


@pytest.fixture
async def beside(register: Any, deny: Any) -> None:
    """The project `old`, which two apps registered that may not read each other."""
    await deny("claude", "cursor")
    await deny("cursor", "claude")
    await register("cursor", "old", name="Of cursor")
    await register("claude", "old", name="Of claude")


async def test_all_registrations_of_a_project_go_with_it(client, new_user, beside, names):
    assert (await client.delete(f"{PATH}/old", params={"user_id": new_user})).is_success
    assert await names(None, "cursor", "claude") == [{}, {}, {}]


async def test_all_registrations_get_the_new_name_of_a_project(beside, move, names):
    assert (await move("old", "new"))["namespace"] == "new"
    assert await names(None, "cursor", "claude") == [
        {"new": "Of cursor"}, {"new": "Of cursor"}, {"new": "Of claude"},
    ]  # fmt: skip


async def test_a_merged_project_keeps_its_name_and_registrations_beside_that_of_the_other(
    register, beside, move, names, deny
):
    await deny("claude", "notes")
    await register("notes", "new", name="Of notes")
    await move("old", "new", merge=True)
    # Of the two that counted, the one of the other project stays.
    assert await names(None, "notes", "cursor", "claude") == [
        {"new": "Of notes"}, {"new": "Of notes"}, {"new": "Of notes"}, {"new": "Of claude"},
    ]  # fmt: skip


@pytest.fixture
def keep(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(app: str, namespace: str, value: str) -> None:
        """Set one value, and the state, as an app."""
        whose = {"user_id": new_user, "app": app, "namespace": namespace}
        one = await client.put("/api/v1/values", json=whose | {"topic": "t", "key": "k", "value": value})
        two = await client.post(
            "/api/v1/state/checkpoint", json=whose | {"state": {"is": value}, "reason": f"{app} {value}"}
        )
        assert (one.status_code, two.status_code) == (200, 200), (one.text, two.text)

    return send


@pytest.fixture
def kept(client: httpx.AsyncClient, new_user: str, get: Any) -> Any:
    async def read(namespace: str, *apps: str) -> list[set[str]]:
        """The values that the user sees, and those that each app sees. The states are the same."""
        found = list[set[str]]()
        for app in (None, *apps):
            asking = {"app": app} if app else {}
            values = {one["value"] for one in (await get("values", namespace=namespace, **asking))["items"]}
            state = (await get("state", namespace=namespace, **asking))["state"]["is"]
            counting = (await get("values/t/k", namespace=namespace, **asking))["value"]
            assert state == counting
            assert state in values
            found.append(values)
        return found

    return read


async def test_what_stands_beside_something_hidden_survives_another_name_and_a_check(
    client, new_user, keep, kept, move, deny
):
    await deny("claude", "cursor")
    await deny("cursor", "claude")
    await keep("cursor", "old", "cursor's")
    await keep("claude", "old", "claude's")
    both = [{"cursor's", "claude's"}, {"cursor's"}, {"claude's"}]
    assert await kept("old", "cursor", "claude") == both
    assert (await move("old", "new"))["archived"] == 0
    assert await kept("new", "cursor", "claude") == both
    check = {"user_id": new_user, "namespace": "new", "repair": True}
    assert (await client.post(f"{PATH}/actions/check", json=check)).json()["checks"] == []
    assert await kept("new", "cursor", "claude") == both


@pytest.mark.parametrize("newer", ["old", "new"])
async def test_a_merge_archives_only_the_older_of_the_values_that_count(keep, kept, move, deny, newer):
    for app in ("cursor", "claude", "notes"):
        for other in {"cursor", "claude", "notes"} - {app}:
            await deny(app, other)
    for app, namespace in (("cursor", "old"), ("claude", "old"), ("notes", "new")):
        await keep(app, namespace, f"{app}'s")
    await keep("cursor" if newer == "old" else "notes", newer, "newest")
    moved = await move("old", "new", merge=True)
    assert moved["archived"] == 2  # a value and a state
    [owner] = await kept("new")
    assert owner == {"newest", "claude's"}


async def test_equal_values_of_one_app_do_not_clash(keep, kept, move, deny):
    await deny("claude", "cursor")
    await deny("cursor", "claude")
    for namespace in ("new", "old"):
        await keep("cursor", namespace, "same")
    await keep("claude", "old", "claude's")
    moved = await move("old", "new", merge=True)
    assert (moved["archived"], moved["repeated"]) == (0, 3)  # the value, the state, and its reason
    assert await kept("new", "cursor", "claude") == [{"same", "claude's"}, {"same"}, {"claude's"}]


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


@pytest.fixture
def move(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(namespace: str, to: str, status: int = 200, **fields: Any) -> Any:
        body = {"user_id": new_user, "namespace": namespace, "to": to} | fields
        answer = await client.post(f"{PATH}/actions/move", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


@pytest.fixture
def get(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(path: str, **params: Any) -> Any:
        answer = await client.get(f"/api/v1/{path}", params={"user_id": new_user} | params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


async def found(client: httpx.AsyncClient, user: str, namespace: str, **asked: Any) -> list[Any]:
    body = {"user_id": user, "namespaces": [namespace]} | asked
    answer = await client.post("/api/v1/memories/search", json=body)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return list(body["results"] if asked["corpus"] == "memories" else body["passages"]["results"])


async def test_a_project_gets_another_name_with_all_that_is_in_it(client, new_user, project, move, get, services):
    whose = {"user_id": new_user}
    await client.post(PATH, json=whose | {"namespace": project, "branch": "main"})
    rule = whose | {"app": "claude", "effect": "deny", "object_type": "namespace", "object": project}
    assert (await client.post(GRANTS, json=rule)).is_success
    made = await client.post("/api/v1/keys", json=whose | {"name": "shop", "namespaces": [project, "other"]})
    assert made.is_success, made.text
    moved = await move(project, "tea/shop")
    assert moved == {
        "namespace": "tea/shop", "memories": 4, "passages": 2, "repeated": 0, "archived": 0, "files": 0,
    }  # fmt: skip
    await services.outbox_delivery.drain()
    [default, shop] = (await get("projects"))["projects"]
    assert (default["namespace"], default["memories"]) == ("default", 1)
    assert (shop["namespace"], shop["name"], shop["branch"]) == ("tea/shop", "tea/shop", "main")
    assert (shop["memories"], shop["conversations"], shop["files"]) == (4, 1, 1)
    assert (await get("state", namespace="tea/shop"))["state"] == {"goal": "tea"}
    for corpus in ("memories", "passages"):
        asked = {"query": "what does the shop sell? tea", "corpus": corpus}
        assert await found(client, new_user, "tea/shop", **asked)
        assert not await found(client, new_user, project, **asked)
    pack = await client.post("/api/v1/context", json=whose | {"namespace": "tea/shop", "query": "tea", "app": "claude"})
    assert pack.json()["state"] is None  # the rule has moved too
    keys = (await get("keys"))["keys"]
    assert [one["namespaces"] for one in keys if one["name"] == "shop"] == [["tea/shop", "other"]]
    await move(project, "again", 404)


async def test_what_cannot_be_moved_is_refused_and_left_as_it_is(client, new_user, project, move, get, remember):
    before = await get("projects")
    await move(project, "default", 409)
    assert "another name" in (await move(project, project, 422))["detail"]
    assert "namespace" in (await move(" ", "x", 422))["detail"]
    await move("nowhere", "x", 404)
    other = {"user_id": new_user, "app": "cursor", "namespace": "default"}
    await client.post("/api/v1/threads/t/messages", json=other | {"messages": [{"content": "Hello."}]})
    before = await get("projects")
    refused = await move(project, "default", 409, merge=True)
    assert (refused["error"], "conversation 't'" in refused["detail"]) == ("source_exists", True)
    assert await get("projects") == before
    await client.delete("/api/v1/threads/t", params={"user_id": new_user, "namespace": "default"})
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "namespace", "object": project}
    assert (await client.post(GRANTS, json=rule)).is_success
    assert (await move(project, "fresh2", 200))["namespace"] == "fresh2"
    refused = await move("fresh2", "default", 409, merge=True)
    assert refused["error"] == "rules_differ"
    assert (await client.post(GRANTS, json=rule)).is_success
    assert (await move("fresh2", project, 409))["error"] == "rules_differ"


async def test_of_two_projects_the_newer_values_and_files_stay(client, new_user, move, get, remember, services):
    async def send(method: str, path: str, namespace: str, **fields: Any) -> None:
        whose = {"user_id": new_user, "app": "cursor", "namespace": namespace}
        answer = await client.request(method, f"/api/v1/{path}", json=whose | fields)
        assert answer.is_success, answer.text

    async def value(namespace: str, key: str, value: str) -> None:
        await send("PUT", "values", namespace, topic="stack", key=key, value=value)

    await value("old", "db", "MySQL")
    await value("old", "queue", "RabbitMQ")
    await value("new", "db", "PostgreSQL")
    await send("POST", "state/checkpoint", "new", state={"a": 1}, reason="x")
    await value("new", "queue", "none")
    await value("old", "queue", "outbox")
    await send("POST", "state/checkpoint", "old", state={"a": 2}, reason="y")
    for namespace, said in (("new", "# New\n"), ("old", "# Old\n")):
        await send("POST", "files/batch", namespace, files=[{"path": "a.md", "text": said}])
        await remember(new_user, "Everyone likes tea.", namespace=namespace, app="cursor")
    moved = await move("old", "new", merge=True)
    assert (moved["repeated"], moved["archived"], moved["files"]) == (1, 3, 1)
    values = (await get("values", namespace="new"))["items"]
    assert {one["key"]: one["value"] for one in values} == {"db": "PostgreSQL", "queue": "outbox"}
    assert (await get("state", namespace="new"))["state"] == {"a": 2}
    await services.outbox_delivery.drain()
    passages = await found(client, new_user, "new", query="old", corpus="passages")
    assert [one["content"].strip() for one in passages] == ["# Old"]
    [shop] = (await get("projects"))["projects"]
    assert (shop["namespace"], shop["files"]) == ("new", 1)


async def test_a_check_finds_and_repairs_what_is_wrong(client, new_user, project, services, get, remember):
    async def check(repair: bool = False, status: int = 200, **fields: Any) -> dict[str, Any]:
        body = {"user_id": new_user, "namespace": project, "repair": repair} | fields
        answer = await client.post(f"{PATH}/actions/check", json=body)
        assert answer.status_code == status, answer.text
        return {one["check"]: (one["problems"], one["repaired"]) for one in answer.json().get("checks", [])}

    assert await check() == {}
    state = await get("state", namespace=project)
    owner = await services.directory.caller(new_user, None, owner=True)
    broken = MemoryUpdate(text="no json", metadata={})
    await services.memories.update(owner, UUID(state["id"]), broken)
    gone = await remember(new_user, "Old.", namespace=project, metadata={"commit": "e" * 40})
    kept = await remember(new_user, "Kept.", namespace=project, metadata={"commit": "f" * 40})
    link = {"user_id": new_user, "from_id": gone["id"], "rel": "is", "to_id": kept["id"]}
    assert (await client.post("/api/v1/links", json=link)).is_success
    await services.memories.change_state(owner, [UUID(gone["id"])], State.DELETED, strict=True)
    twice = [MemoryCreate(f"a/b: {value}", namespace=project, kind="keyed", key="a/b") for value in (1, 2)]
    async with services.database.transaction() as tx:
        app = await services.directory.caller(new_user, "cursor")
        await changes.add(tx, app, [CheckedMemory(**asdict(one)) for one in twice], {})
    found = {"state": 1, "repeated": 1, "links": 1, "anchors": 1}
    assert await check() == {name: (number, False) for name, number in found.items()}
    assert (await get("state", namespace=project))["state"] is None
    assert await check(repair=True) == {name: (number, name != "anchors") for name, number in found.items()}
    assert await check() == {"anchors": (1, False)}
    again = await get("state", namespace=project)
    assert (again["state"], again["reason"]) == ({"goal": "tea"}, "Repaired: it could not be read.")
    assert (await get("values", namespace=project))["total"] == 1
