"""What credentials open over REST, and what they do not: one user's, one app's, some namespaces', one scope's."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import NullPool, make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import create_async_engine

from openmemory.access import keys as keys_module
from openmemory.access.schemas import KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import MemoryCreate
from tests.addresses import unused_address
from tests.minute import early_in_a_minute

MEMORIES = "/api/v1/memories"


@pytest.fixture(scope="session")
async def locked(make_client):
    """A client of a service that asks everybody for a credential."""
    async with make_client(access={"require": "always"}) as http:
        yield http


@pytest.fixture
def key(services, new_user):
    """Makes a key for the test's user, or whose else, and returns the header that shows it."""

    async def make(**about: Any) -> dict[str, str]:
        whose = {} if about.get("everyone") else {"user_id": new_user}
        made = await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test"} | whose | about))
        return {"Authorization": f"Bearer {made.key}"}

    return make


async def test_without_a_credential_nothing_opens_but_the_probes(locked):
    assert (await locked.get("/health/live")).status_code == 200
    answer = await locked.get(MEMORIES, params={"user_id": "default_user"})
    assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_users_key_speaks_for_that_user_and_no_other(locked, key, new_user, remember):
    await remember("somebody-else", f"a secret of {new_user}")
    mine = await key()
    added = await locked.post(MEMORIES, headers=mine, json={"user_id": new_user, "text": "I ski.", "infer": False})
    assert added.status_code == 200
    listed = await locked.get(MEMORIES, headers=mine, params={"user_id": new_user})
    assert [item["content"] for item in listed.json()["items"]] == ["I ski."]
    for other in ("somebody-else", f"nobody-{uuid4()}"):
        answer = await locked.get(MEMORIES, headers=mine, params={"user_id": other})
        assert (answer.status_code, answer.json()["error"]) == (403, "user_not_allowed")


@pytest.mark.parametrize("app", [None, "claude"])
async def test_a_users_key_finds_nothing_of_another_where_no_user_is_named(locked, key, services, remember, app):
    """Only who may speak for everybody is answered in the name of whose it is."""
    theirs = (await remember("somebody-else", "a secret"))["id"]
    caller = await services.directory.caller("somebody-else", None, owner=True)
    everyone, mine = await key(everyone=True), await key(app=app)
    for path in (f"{MEMORIES}/{theirs}", f"{MEMORIES}/{theirs}/related", f"{MEMORIES}/{theirs}/history"):
        assert (await locked.get(path, headers=everyone)).status_code == 200
        answer = await locked.get(path, headers=mine)
        assert (answer.status_code, answer.json()["error"]) == (404, "memory_not_found")
    if app is None:
        for part in ("", "/memories", "/accessed"):
            path = f"/api/v1/apps/{caller.app_id}{part}"
            assert (await locked.get(path, headers=everyone)).status_code == 200
            answer = await locked.get(path, headers=mine)
            assert (answer.status_code, answer.json()["error"]) == (404, "app_not_found")
        answer = await locked.put(f"/api/v1/apps/{caller.app_id}", headers=mine, params={"is_active": False})
        assert (answer.status_code, answer.json()["error"]) == (404, "app_not_found")
        answer = await locked.get(f"{MEMORIES}/{theirs}/access-log", headers=mine)
        assert (answer.status_code, answer.json()["error"]) == (404, "memory_not_found")


async def test_a_user_that_is_not_named_is_the_keys(locked, key, services, new_user):
    caller = await services.directory.caller(new_user, "claude")
    added = await services.memories.add(caller, MemoryCreate(text="I ski."))
    answer = await locked.get(f"{MEMORIES}/{added.id}", headers=await key())
    assert answer.json()["text"] == "I ski."
    stranger = await locked.get(f"{MEMORIES}/{added.id}", headers=await key(user_id=f"{new_user}-other"))
    unknown = await locked.get(f"{MEMORIES}/{uuid4()}", headers=await key(user_id=f"{new_user}-other"))
    assert (stranger.status_code, stranger.json()) == (unknown.status_code, unknown.json()) == (404, stranger.json())


async def test_an_apps_key_writes_as_that_app_and_is_bound_by_its_rules(locked, key, client, new_user):
    mine, whole = await key(app="cursor"), await key()
    body = {"user_id": new_user, "text": "Ships on Tuesday.", "infer": False}
    row = (await locked.post(MEMORIES, headers=mine, json=body)).json()
    detail = (await locked.get(f"{MEMORIES}/{row['id']}", headers=whole)).json()
    assert detail["app_name"] == "cursor"
    rule = {"user_id": new_user, "effect": "deny", "object_type": "all", "app": "cursor"}
    refused = await locked.post("/api/v1/grants", headers=mine, json=rule)
    assert (refused.status_code, refused.json()["error"]) == (403, "owner_only")
    assert (await locked.post("/api/v1/grants", headers=whole, json=rule)).status_code == 201
    assert (await locked.get(f"{MEMORIES}/{row['id']}", headers=mine)).status_code == 404
    as_another = await locked.post(MEMORIES, headers=mine, json=body | {"app": "claude"})
    assert (as_another.status_code, as_another.json()["error"]) == (403, "app_not_allowed")
    for path in ("/api/v1/apps", "/api/v1/grants", "/api/v1/audit"):
        answer = await locked.get(path, headers=mine, params={"user_id": new_user})
        assert (answer.status_code, answer.json()["error"]) == (403, "owner_only"), path
    log = await locked.get(f"{MEMORIES}/{row['id']}/access-log", headers=mine)
    assert log.json()["error"] == "owner_only"


async def test_a_key_of_some_namespaces_reaches_no_other(locked, key, new_user):
    whole, narrow = await key(), await key(namespaces=["work"])
    ids = {}
    for namespace in ("work", "home"):
        body = {"user_id": new_user, "text": f"A fact of {namespace}.", "infer": False, "namespace": namespace}
        ids[namespace] = (await locked.post(MEMORIES, headers=whole, json=body)).json()["id"]
    listed = (await locked.get(MEMORIES, headers=narrow, params={"user_id": new_user})).json()
    assert ([item["id"] for item in listed["items"]], listed["total"]) == ([ids["work"]], 1)
    found = await locked.post(f"{MEMORIES}/search", headers=narrow, json={"user_id": new_user, "query": "a fact"})
    assert [result["id"] for result in found.json()["results"]] == [ids["work"]]
    for wanted in (["home"], ["home", "work"]):
        query = {"user_id": new_user, "query": "a fact", "namespaces": wanted}
        found = await locked.post(f"{MEMORIES}/search", headers=narrow, json=query)
        assert ids["home"] not in str(found.json())
    assert (await locked.get(f"{MEMORIES}/{ids['home']}", headers=narrow)).status_code == 404
    for action in ("archive", "restore", "erase"):
        body = {"user_id": new_user, "memory_ids": [ids["home"]]}
        assert (await locked.post(f"{MEMORIES}/actions/{action}", headers=narrow, json=body)).status_code == 404
    everything = {"user_id": new_user, "global_pause": True}
    assert (await locked.post(f"{MEMORIES}/actions/pause", headers=narrow, json=everything)).status_code == 200
    home = (await locked.get(f"{MEMORIES}/{ids['home']}", headers=whole)).json()
    assert home["state"] == "active"
    body = {"user_id": new_user, "text": "Elsewhere.", "infer": False, "namespace": "home"}
    refused = await locked.post(MEMORIES, headers=narrow, json=body)
    assert (refused.status_code, refused.json()["error"]) == (403, "namespace_not_allowed")
    for method, path in (("GET", "/api/v1/apps"), ("GET", "/api/v1/grants"), ("GET", "/api/v1/audit")):
        answer = await locked.request(method, path, headers=narrow, params={"user_id": new_user})
        assert (answer.status_code, answer.json()["error"]) == (403, "namespace_not_allowed"), path
    erase = await locked.delete(f"/api/v1/users/{new_user}", headers=narrow, params={"confirm": new_user})
    assert erase.status_code == 403


async def test_a_key_of_some_namespaces_is_told_no_query_that_went_further(locked, key, services, new_user):
    whole, narrow = await key(), await key(namespaces=["work", "spare"])
    body = {"user_id": new_user, "text": "A fact of work.", "infer": False, "namespace": "work"}
    row = (await locked.post(MEMORIES, headers=whole, json=body)).json()
    asked = (
        ("fact everywhere", whole, {}),
        ("fact here", whole, {"namespace": "work"}),
        ("fact in one too many", whole, {"namespaces": ["work", "home"]}),
        ("fact within reach", narrow, {}),
        ("fact of whoever asks for more", narrow, {"namespaces": ["work", "home"]}),
    )
    for words, headers, where in asked:
        query = {"user_id": new_user, "query": words, "app": "cursor"} | where
        found = (await locked.post(f"{MEMORIES}/search", headers=headers, json=query)).json()["results"]
        assert [result["id"] for result in found] == [row["id"]]
    async with services.database.transaction() as tx:
        # As an archive brings it in, which may say of an access whatever it likes.
        imported = """
            INSERT INTO memory_access_logs (memory_id, app_id, access_type, metadata, namespaces, imported_at)
            SELECT :id, app_id, 'list', '{"asked": "fact of an archive"}', NULL, now() FROM memories WHERE id = :id
        """
        await tx.execute(text(imported), {"id": row["id"]})
    path, size = f"{MEMORIES}/{row['id']}/access-log", {"page_size": 50, "fold": "false"}
    every = (await locked.get(path, headers=whole, params=size)).json()
    some = (await locked.get(path, headers=narrow, params=size)).json()
    assert {log["metadata_"].get("query") for log in every["logs"]} >= {words for words, _, _ in asked}
    # That there was an access is told, and no score by which a guess at the query could be tried.
    assert [log["id"] for log in some["logs"]] == [log["id"] for log in every["logs"]]
    within = {"fact here", "fact within reach", "fact of whoever asks for more"}
    for whole_log, log in zip(every["logs"], some["logs"], strict=True):
        words = whole_log["metadata_"].get("query") or whole_log["metadata_"].get("asked")
        told = words is None or words in within
        assert log["metadata_"] == (whole_log["metadata_"] if told else {}), words


async def test_a_key_that_reads_writes_nothing_and_one_that_writes_reads_nothing(locked, key, new_user):
    reads, writes = await key(scopes=["read"]), await key(scopes=["write"])
    body = {"user_id": new_user, "text": "I ski.", "infer": False}
    refused = await locked.post(MEMORIES, headers=reads, json=body)
    assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")
    row = await locked.post(MEMORIES, headers=writes, json=body)
    assert row.status_code == 200
    some = {"user_id": new_user, "memory_ids": [row.json()["id"]]}
    for method, path, sent in (
        ("PUT", f"{MEMORIES}/{row.json()['id']}", {"user_id": new_user, "memory_content": "I do not."}),
        ("DELETE", MEMORIES, some),
        ("POST", f"{MEMORIES}/actions/archive", some),
        ("POST", f"{MEMORIES}/actions/erase", some),
        ("POST", f"{MEMORIES}/actions/pause", {"user_id": new_user, "global_pause": True}),
        ("POST", "/api/v1/grants", {"user_id": new_user, "effect": "deny", "object_type": "all"}),
        ("POST", f"/api/v1/sync?user_id={new_user}", None),
    ):
        answer = await locked.request(method, path, headers=reads, json=sent)
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope"), path
    query = {"user_id": new_user, "query": "skiing"}
    assert (await locked.post(f"{MEMORIES}/search", headers=writes, json=query)).status_code == 403
    for path in (MEMORIES, f"{MEMORIES}/{row.json()['id']}", f"{MEMORIES}/{row.json()['id']}/history"):
        answer = await locked.get(path, headers=writes, params={"user_id": new_user})
        assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope"), path


OPERATION = [
    ("GET", "/metrics"), ("GET", "/api/v1/doctor"), ("GET", "/api/v1/sync/runs"), ("POST", "/api/v1/sync"),
    ("POST", "/sync"), ("GET", "/api/v1/keys"), ("GET", "/api/v1/audit"),
]  # fmt: skip


@pytest.mark.parametrize(("method", "path"), OPERATION)
async def test_what_concerns_all_users_is_for_administrators(locked, key, method, path):
    answer = await locked.request(method, path, headers=await key())
    assert (answer.status_code, answer.json()["error"]) == (403, "insufficient_scope")
    admin = await locked.request(method, path, headers=await key(everyone=True, scopes=["admin"]))
    assert admin.status_code in (200, 409), admin.text


async def test_a_monitor_for_everyone_needs_no_administrators_key(locked, key):
    headers = await key(everyone=True, scopes=["read"])
    assert (await locked.get("/metrics", headers=headers)).status_code == 200
    assert (await locked.get("/api/v1/keys", headers=headers)).status_code == 403
    for bound in ({"app": "claude"}, {"namespaces": ["work"]}):
        narrow = await key(everyone=True, scopes=["read"], **bound)
        assert (await locked.get("/metrics", headers=narrow)).status_code == 403


async def test_an_internal_id_claims_no_more_than_a_name(locked, key, services, new_user, remember):
    await remember(new_user, "mine")
    row = await remember(f"{new_user}-other", "theirs")
    async with services.database.statement() as tx:
        query = text("SELECT id FROM users WHERE user_id = :name")
        other = await tx.scalar(query, {"name": f"{new_user}-other"})
        me = await tx.scalar(query, {"name": new_user})
    mine = await key()
    for claimed in (other, uuid4()):
        answer = await locked.post(
            f"{MEMORIES}/actions/archive", headers=mine, params={"user_id": str(claimed)}, json=[row["id"]]
        )
        assert (answer.status_code, answer.json()["error"]) == (403, "user_not_allowed")
    answer = await locked.post(
        f"{MEMORIES}/actions/archive", headers=mine, params={"user_id": str(me)}, json=[row["id"]]
    )
    assert answer.status_code == 404


async def test_keys_are_made_listed_rotated_and_revoked(locked, key, new_user):
    admin = await key(everyone=True, scopes=["admin"])
    body = {"name": "claude", "user_id": new_user, "app": "claude", "scopes": ["read"]}
    made = await locked.post("/api/v1/keys", headers=admin, json=body)
    assert (made.status_code, made.json()["user_id"], made.json()["scopes"]) == (201, new_user, ["read"])
    listed = await locked.get("/api/v1/keys", headers=admin, params={"user_id": new_user})
    assert [one["id"] for one in listed.json()["keys"]] == [made.json()["id"]]
    assert made.json()["key"].split("_", 2)[2] not in listed.text
    rotated = await locked.post(f"/api/v1/keys/{made.json()['id']}/rotate", headers=admin)
    assert rotated.status_code == 201
    old = await locked.get(MEMORIES, headers={"X-API-Key": made.json()["key"]}, params={"user_id": new_user})
    assert (old.status_code, old.json()["error"]) == (401, "invalid_credential")
    new = await locked.get(MEMORIES, headers={"X-API-Key": rotated.json()["key"]}, params={"user_id": new_user})
    assert new.status_code == 200
    gone = await locked.delete(f"/api/v1/keys/{rotated.json()['id']}", headers=admin)
    assert gone.status_code == 200
    assert (await locked.delete(f"/api/v1/keys/{uuid4()}", headers=admin)).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": "k"}, "user_id"),
        ({"name": " ", "user_id": "x"}, "name"),
        ({"name": "k", "user_id": "x", "scopes": ["root"]}, "scopes[0]"),
        ({"name": "k", "user_id": "x", "scopes": []}, "scopes"),
        ({"name": "k", "user_id": "x", "namespaces": []}, "namespaces"),
        ({"name": "k", "user_id": "x", "namespaces": [""]}, "namespaces"),
        ({"name": "k", "user_id": "x\x00"}, "user_id"),
        ({"name": "k", "user_id": "x", "expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"name": "k", "user_id": "x", "admin": True}, "admin"),
    ],
)
async def test_a_key_that_cannot_be_made_is_refused_with_the_field(client, body, field):
    answer = await client.post("/api/v1/keys", json=body)
    assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (422, field)


async def test_everything_that_is_done_or_denied_is_in_the_audit_log(locked, key, services, new_user):
    mine = await key()
    body = {"user_id": new_user, "text": "I keep bees.", "infer": False}
    row = (await locked.post(MEMORIES, headers=mine | {"X-Request-ID": "add-1"}, json=body)).json()
    await locked.post(f"{MEMORIES}/search", headers=mine, json={"user_id": new_user, "query": "bees"})
    await locked.post(f"{MEMORIES}/search", headers=mine, json={"user_id": new_user, "query": "zzz"})
    await locked.get(MEMORIES, headers=mine, params={"user_id": new_user})
    await locked.get(f"{MEMORIES}/{row['id']}", headers=mine)
    unknown = str(uuid4())
    await locked.get(f"{MEMORIES}/{unknown}", headers=mine)
    change = {"user_id": new_user, "memory_content": "I kept bees."}
    await locked.put(f"{MEMORIES}/{row['id']}", headers=mine, json=change)
    some = {"user_id": new_user, "memory_ids": [row["id"]]}
    for action in ("archive", "restore"):
        await locked.post(f"{MEMORIES}/actions/{action}", headers=mine, json=some)
    rule = {"user_id": new_user, "effect": "deny", "object_type": "all"}
    grant = (await locked.post("/api/v1/grants", headers=mine, json=rule)).json()
    await locked.delete(f"/api/v1/grants/{grant['id']}", headers=mine, params={"user_id": new_user})
    await locked.post(f"{MEMORIES}/actions/erase", headers=mine, json=some)
    events = (await locked.get("/api/v1/audit", headers=mine, params={"user_id": new_user})).json()["events"]
    assert [event["event"] for event in reversed(events)] == [
        "key.create", "memory.add", "memory.search", "memory.search", "memory.list", "memory.get", "memory.update",
        "memory.archive", "memory.restore", "grant.create", "grant.revoke", "memory.erase",
    ]  # fmt: skip
    added = events[-2]
    assert (added["objects"], added["count"], added["request"], added["door"]) == ([row["id"]], 1, "add-1", "rest")
    assert added["address"] == "127.0.0.1"
    assert added["principal"].startswith("key:")
    assert added["user_name"] == new_user
    assert "bees" not in str(events)
    admin = await key(everyone=True, scopes=["admin"])
    params = {"denied": True, "limit": 1000}
    denied = (await locked.get("/api/v1/audit", headers=admin, params=params)).json()["events"]
    [attempt] = [event for event in denied if event["principal"] == added["principal"]]
    assert (attempt["event"], attempt["result"]) == ("access.denied", "memory_not_found")
    assert attempt["objects"] == [unknown]
    assert attempt["detail"] == {"operation": f"GET {MEMORIES}/{{memory_id}}"}


async def test_a_list_of_a_paused_app_says_why_it_is_empty(locked, key, new_user, remember):
    row = await remember(new_user, "I ski.", app="claude")
    its, mine = await key(app="claude"), await key()
    assert "note" not in (await locked.get(MEMORIES, headers=its)).json()
    await locked.put(f"/api/v1/apps/{row['app_id']}", headers=mine, params={"is_active": False})
    for empty in (
        await locked.get(MEMORIES, headers=its),
        await locked.post(f"{MEMORIES}/filter", headers=its, json={}),
    ):
        assert empty.json()["items"] == []
        assert empty.json()["note"] == "App claude is currently paused on OpenMemory. Cannot read memories."


async def test_the_audit_log_of_a_user_shows_nothing_of_others_and_is_paged(locked, key, new_user, remember):
    await remember(new_user, "one")
    await remember(f"{new_user}-other", "two")
    mine = await key()
    params: dict[str, Any] = {"user_id": new_user, "limit": 1}
    seen = []
    while True:
        page = (await locked.get("/api/v1/audit", headers=mine, params=params)).json()
        seen += [event["user_name"] for event in page["events"]]
        if page["next"] is None:
            break
        params["before"] = page["next"]
    assert set(seen) == {new_user}
    assert len(seen) >= 2


async def test_the_audit_log_cannot_be_changed_and_only_what_is_old_can_be_removed(services, remember, new_user):
    await remember(new_user, "one")
    for statement in (
        "UPDATE audit_events SET event = 'nothing'", "DELETE FROM audit_events", "TRUNCATE audit_events",
    ):  # fmt: skip
        with pytest.raises(DBAPIError, match="append-only"):
            async with services.database.transaction() as tx:
                await tx.execute(text(statement))
    old = str(uuid4())
    async with services.database.statement() as tx:
        await tx.execute(
            text(
                "INSERT INTO audit_events (id, at, event, principal, principal_name, door) OVERRIDING SYSTEM VALUE"
                " VALUES (-1, now() - interval '366 days', :event, 'local', 'x', 'rest'),"
                " (-2, now() - interval '364 days', :event, 'local', 'x', 'rest')"
            ),
            {"event": old},
        )
        await services.audit.prune()
        left = await tx.scalars(text("SELECT id FROM audit_events WHERE event = :event"), {"event": old})
        assert list(left) == [-2]
        await tx.execute(text("DELETE FROM audit_events WHERE id = -2"))


async def test_the_audit_log_cannot_be_changed_by_a_session_that_calls_itself_a_replica(services, remember, new_user):
    await remember(new_user, "one")
    superuser = make_url(services.stores.database).set(username="postgres")
    engine = create_async_engine(superuser, poolclass=NullPool)
    for statement in ("UPDATE audit_events SET event = 'nothing'", "DELETE FROM audit_events", "TRUNCATE audit_events"):
        async with engine.connect() as connection:
            await connection.execute(text("SET session_replication_role = replica"))
            with pytest.raises(DBAPIError, match="append-only"):
                await connection.execute(text(statement))
    await engine.dispose()


async def test_old_lines_of_the_access_log_go_and_the_rest_stays(services, remember, client, new_user):
    row = await remember(new_user, "one")
    for _ in range(2):
        body = {"user_id": new_user, "query": "one", "app": "cursor"}
        assert (await client.post(f"{MEMORIES}/search", json=body)).json()["results"]
    async with services.database.statement() as tx:
        await tx.execute(
            text(
                "UPDATE memory_access_logs SET accessed_at = now() - interval '366 days' WHERE id ="
                " (SELECT id FROM memory_access_logs WHERE memory_id = :id LIMIT 1)"
            ),
            {"id": row["id"]},
        )
        await services.audit.prune()
        left = await tx.scalar(text("SELECT count(*) FROM memory_access_logs WHERE memory_id = :id"), {"id": row["id"]})
    assert left == 1


async def test_an_app_brings_back_what_it_has_deleted_and_nothing_that_the_user_put_away(locked, key, new_user):
    app, whole = await key(app="claude"), await key()
    ids = []
    for number in range(4):
        body = {"user_id": new_user, "text": f"Fact {number}.", "infer": False}
        ids.append((await locked.post(MEMORIES, headers=app, json=body)).json()["id"])
    own, *others = ids
    assert (
        await locked.request("DELETE", MEMORIES, headers=app, json={"user_id": new_user, "memory_ids": [own]})
    ).is_success
    for action, id_ in zip(("archive", "pause", "delete"), others, strict=True):
        some = {"user_id": new_user, "memory_ids": [id_]}
        if action == "delete":
            done = await locked.request("DELETE", MEMORIES, headers=whole, json=some)
        else:
            done = await locked.post(f"{MEMORIES}/actions/{action}", headers=whole, json=some)
        assert done.status_code == 200
    statuses = []
    for id_ in ids:
        some = {"user_id": new_user, "memory_ids": [id_]}
        statuses.append((await locked.post(f"{MEMORIES}/actions/restore", headers=app, json=some)).status_code)
    assert statuses == [200, 404, 404, 404]


async def test_a_text_that_is_known_already_is_logged_too(locked, key, new_user):
    mine = await key()
    body = {"user_id": new_user, "text": "I ski.", "infer": False}
    ids = {(await locked.post(MEMORIES, headers=mine, json=body)).json()["id"] for _ in range(2)}
    params = {"user_id": new_user, "event": "memory.add"}
    events = (await locked.get("/api/v1/audit", headers=mine, params=params)).json()["events"]
    assert [event["detail"] for event in events] == [{"event": "NONE"}, None]
    assert {id_ for event in events for id_ in event["objects"]} == ids


async def test_wrong_keys_are_logged_then_shut_out_while_known_ones_pass(make_client, services, key, new_user):
    wrong = f"om_{uuid4().hex[:8]}_{'A' * 43}"
    good = await key()
    async with make_client(access={"require": "always"}) as http:
        http._transport.client = (unused_address(), 1)
        params = {"user_id": new_user}
        assert (await http.get(MEMORIES, headers=good, params=params)).status_code == 200
        await early_in_a_minute()
        statuses = [
            (await http.get(MEMORIES, headers={"X-API-Key": wrong}, params=params)).status_code for _ in range(25)
        ]
        assert statuses == [401] * 20 + [429] * 5
        refused = await http.get(MEMORIES, headers={"X-API-Key": wrong}, params=params)
        assert 0 < int(refused.headers["retry-after"]) <= 120
        assert (await http.get(MEMORIES, headers=good, params=params)).status_code == 200
        assert (await http.get("/health/live")).status_code == 200
    async with services.database.statement() as tx:
        query = text("SELECT count(*) FROM audit_events WHERE event = 'credential.refused' AND principal_name = :p")
        assert await tx.scalar(query, {"p": wrong[:11]}) == 20


async def test_addresses_of_one_ipv6_network_are_one_client(make_client):
    wrong = {"X-API-Key": f"om_{uuid4().hex[:8]}_{'A' * 43}"}
    network = f"2001:db8:{uuid4().int % 65536:x}:{uuid4().int % 65536:x}"
    async with make_client(access={"require": "always"}) as http:
        statuses = []
        await early_in_a_minute()
        for number in range(21):
            http._transport.client = (f"{network}::{number:x}", 1)
            statuses.append((await http.get(MEMORIES, headers=wrong)).status_code)
    assert statuses == [401] * 20 + [429]


async def test_a_good_key_is_let_in_although_others_of_its_address_sent_wrong_ones(
    make_client, services, key, new_user, monkeypatch
):
    params = {"user_id": new_user}
    async with make_client(access={"require": "always"}) as http:
        http._transport.client = (unused_address(), 2)
        await early_in_a_minute()
        for _ in range(25):
            wrong = {"X-API-Key": f"om_{uuid4().hex[:8]}_{'A' * 43}"}
            last = await http.get(MEMORIES, headers=wrong, params=params)
        assert last.status_code == 429
        good = await key()  # that this service has never seen
        assert (await http.get(MEMORIES, headers=good, params=params)).status_code == 200
        monkeypatch.setattr(keys_module, "CACHE_SECONDS", 0.0)  # as after five seconds
        assert (await http.get(MEMORIES, headers=good, params=params)).status_code == 200
        [mine] = await services.keys.list(LOCAL, user=new_user)
        await services.keys.revoke(LOCAL, mine.id)
        # Nothing tells a key that has ended from one that never was, or that is none at all.
        refused = [
            await http.get(MEMORIES, headers=headers, params=params)
            for headers in (good, wrong, {"X-API-Key": "none"}, {"X-API-Key": good["Authorization"][7:-1] + "A"})
        ]
        assert {answer.status_code for answer in refused} == {429}
        assert len({(answer.json()["error"], answer.json()["detail"]) for answer in refused}) == 1


async def test_wrong_keys_do_not_keep_the_database_from_others(make_client, services, key, new_user, monkeypatch):
    """Of those whose address sent too many, two are looked up at once, however many come."""
    params, find, now, most = {"user_id": new_user}, services.keys.find, 0, 0

    async def counted(*about: Any, **more: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        try:
            return await find(*about, **more)
        finally:
            now -= 1

    async with make_client(access={"require": "always"}) as http:
        http._transport.client = (unused_address(), 1)
        await early_in_a_minute()
        wrong = [{"X-API-Key": f"om_{uuid4().hex[:8]}_{'A' * 43}"} for _ in range(40)]
        for headers in wrong[:21]:
            await http.get(MEMORIES, headers=headers, params=params)
        monkeypatch.setattr(services.keys, "find", counted)
        good = await key()
        *refused, let_in = await asyncio.gather(
            *(http.get(MEMORIES, headers=headers, params=params) for headers in (*wrong, good))
        )
    assert {answer.status_code for answer in refused} == {429}
    assert let_in.status_code == 200
    assert most == 2


async def test_scores_tell_nothing_of_namespaces_that_a_key_does_not_reach(locked, key, new_user):
    whole, narrow = await key(), await key(namespaces=["work"])
    texts = ["The salary is discussed in spring.", "Ships sail.", "Bees hum."]
    for text_ in texts:
        await locked.post(MEMORIES, headers=whole, json={"user_id": new_user, "text": text_, "namespace": "work"})

    async def scores(namespaces: list[str]) -> Any:
        query = {"user_id": new_user, "query": "salary", "namespaces": namespaces}
        results = (await locked.post(f"{MEMORIES}/search", headers=narrow, json=query)).json()["results"]
        return [found["parts"]["bm25"] for found in results if found["parts"]["bm25"]]

    before = await scores(["work", "home"])
    for number in range(9):
        body = {"user_id": new_user, "text": f"My salary is {number} thousand.", "namespace": "home"}
        await locked.post(MEMORIES, headers=whole, json=body)
    assert await scores(["work", "home"]) == pytest.approx(before, rel=1e-6)
    assert len(before) == 1
    assert await scores(["home"]) == []


async def test_what_a_request_is_narrowed_to_is_bounded(locked, key, new_user):
    mine = await key()
    for field in ("namespaces", "categories"):
        query = {"user_id": new_user, "query": "x", field: [f"n{number}" for number in range(101)]}
        answer = await locked.post(f"{MEMORIES}/search", headers=mine, json=query)
        assert (answer.status_code, answer.json()["detail"]) == (413, f"{field}: has 101 entries; the limit is 100")
    many = [str(uuid4()) for _ in range(101)]
    for field in ("app_ids", "category_ids"):
        answer = await locked.post(f"{MEMORIES}/filter", headers=mine, json={"user_id": new_user, field: many})
        assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (413, field)
    pause = {"user_id": new_user, "category_ids": many}
    assert (await locked.post(f"{MEMORIES}/actions/pause", headers=mine, json=pause)).status_code == 413


async def test_metadata_far_too_large_is_refused_before_it_is_looked_through(locked, key, new_user):
    mine = await key()
    for first in (0, 10**30):
        # The NUL would be refused with other words, had it been reached.
        body = {"user_id": new_user, "text": "x", "metadata": {"a": [first, *[0] * 190_000, "\x00"]}}
        answer = await locked.post(MEMORIES, headers=mine, json=body)
        assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (413, "metadata")


async def test_an_app_sees_no_earlier_text_that_was_hidden_from_it(locked, key, new_user):
    mine, app = await key(), await key(app="claude")
    body = {"user_id": new_user, "text": "The lawyer is Bob.", "categories": ["private"]}
    row = (await locked.post(MEMORIES, headers=mine, json=body)).json()
    rule = {"user_id": new_user, "effect": "deny", "object_type": "category", "object": "private"}
    assert (await locked.post("/api/v1/grants", headers=mine, json=rule)).status_code == 201
    path = f"{MEMORIES}/{row['id']}"
    assert (await locked.get(f"{path}/history", headers=app)).status_code == 404
    change = {"user_id": new_user, "memory_content": "There is a lawyer.", "categories": []}
    assert (await locked.put(path, headers=mine, json=change)).status_code == 200

    async def texts(headers: dict[str, str]) -> list[tuple[str | None, str]]:
        history = (await locked.get(f"{path}/history", headers=headers)).json()
        return [(revision["old_text"], revision["new_text"]) for revision in history["revisions"]]

    assert await texts(app) == [(None, "There is a lawyer.")]
    own = {"user_id": new_user, "memory_content": "There are two lawyers."}
    assert (await locked.put(path, headers=app, json=own)).status_code == 200
    assert await texts(app) == [("There is a lawyer.", "There are two lawyers.")]
    assert len(await texts(mine)) == 3


async def test_an_app_cannot_have_everything_embedded_anew(locked, key, new_user):
    for headers in (await key(app="claude"), await key(namespaces=["work"])):
        answer = await locked.post("/api/v1/sync", headers=headers, params={"user_id": new_user, "full": True})
        assert answer.status_code == 403


async def test_a_user_that_was_erased_is_not_made_again_by_their_key(locked, key, new_user):
    mine = await key()
    assert (await locked.get(MEMORIES, headers=mine, params={"user_id": new_user})).status_code == 200
    erased = await locked.delete(f"/api/v1/users/{new_user}", headers=mine, params={"confirm": new_user})
    assert erased.status_code == 200
    assert (await locked.get(MEMORIES, headers=mine, params={"user_id": new_user})).status_code == 401


async def test_an_assistants_app_stores_thirty_memories_a_minute_and_a_person_as_many_as_they_like(
    locked, key, new_user
):
    app, person = await key(app="claude"), await key()
    body = {"user_id": new_user, "infer": False}
    statuses = []
    await early_in_a_minute()
    for number in range(32):
        answer = await locked.post(MEMORIES, headers=app, json=body | {"text": f"Fact {number}"})
        statuses.append(answer.status_code)
    assert statuses == [200] * 30 + [429] * 2
    assert answer.json()["error"] == "too_many_requests"
    assert "at most 30 in 60 s (rates.saves)" in answer.json()["detail"]
    assert 0 < int(answer.headers["retry-after"]) <= 120
    many = {"user_id": new_user, "memories": [{"text": f"Other fact {number}"} for number in range(100)]}
    assert (await locked.post(f"{MEMORIES}/batch", headers=person, json=many)).status_code == 200
    assert (await locked.post(f"{MEMORIES}/batch", headers=app, json=many)).status_code == 429
