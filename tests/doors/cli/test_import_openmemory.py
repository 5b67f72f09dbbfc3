"""An old installation brought over by the command line into a service, and everything compared."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from openmemory.access.directory import Directory
from openmemory.doors.cli.client import Client
from openmemory.doors.cli.migrating import ImportRequest, Migration
from openmemory.doors.cli.migration_report import answer
from openmemory.errors import NotFound, SetupError
from openmemory.identity.principal import Principal
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.services import Services
from openmemory.uploads.spool import Spool
from tests.doors.cli.installation import Installation, household
from tests.doors.cli.old_server import OldServer
from tests.doors.cli.test_migrating import archives
from tests.doors.mcp.conftest import serving
from tests.index.serving import served


@pytest.fixture(scope="module")
async def client(services: Services) -> AsyncIterator[Client]:
    async with serving(services) as url, httpx.AsyncClient(base_url=url, timeout=60) as http:
        yield Client(http, services.settings)


@pytest.fixture
def bring(client: Client) -> Callable[..., Any]:
    async def run(source: Any, kind: Any = "openmemory", **more: Any) -> Migration:
        migration = Migration(ImportRequest(kind, str(source), **more), "default_user", client)
        await migration.run()
        return migration

    return run


@pytest.fixture
def renamed(new_user: str) -> Callable[[Installation], None]:
    """Gives the people of an installation names that nobody has here: all tests share one service."""

    def rename(old: Installation) -> None:
        with sqlite3.connect(old.path) as connection:
            connection.execute("UPDATE users SET user_id = user_id || ?, email = NULL", [f"-{new_user}"])

    return rename


async def stored(services: Services, query: str, **values: Any) -> list[Any]:
    async with services.database.transaction() as tx:
        return list((await tx.execute(text(query), values)).all())


def utc(moment: str) -> datetime:
    return datetime.fromisoformat(moment).replace(tzinfo=UTC)


async def test_everything_of_everybody_is_there_as_it_was(
    services: Services, client: Client, bring: Any, renamed: Any, new_user: str, tmp_path: Path
) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    renamed(old)
    migration = await bring(old.path)
    assert migration.report.whole, migration.report.as_json()
    for name in ("alice", "bob"):
        user = f"{name}-{new_user}"
        rows = {
            row.id: row
            for row in await stored(
                services,
                """
                SELECT m.*, a.name AS app, array(SELECT c.name FROM categories AS c JOIN memory_categories AS mc
                    ON mc.category_id = c.id WHERE mc.memory_id = m.id) AS filed
                FROM memories AS m JOIN apps AS a ON a.id = m.app_id JOIN users AS u ON u.id = m.user_id
                WHERE u.user_id = :user
                """,
                user=user,
            )
        }
        connection = sqlite3.connect(old.path)
        connection.row_factory = sqlite3.Row
        before = connection.execute(
            "SELECT m.*, a.name AS app FROM memories AS m JOIN apps AS a ON a.id = m.app_id"
            " JOIN users AS u ON u.id = m.user_id WHERE u.user_id = ?",
            [user],
        ).fetchall()
        assert len(before) == len(rows) == 5
        for was in before:
            [now] = [row for id_, row in rows.items() if id_.hex == was["id"]]
            assert (now.content, now.state, now.app, now.metadata) == (
                was["content"], was["state"], was["app"], json.loads(was["metadata"])
            )  # fmt: skip
            for moment in ("created_at", "archived_at", "deleted_at"):
                assert getattr(now, moment) == (utc(was[moment]) if was[moment] else None), moment
            assert now.filed == ["work"]
            history = await stored(
                services, "SELECT * FROM memory_status_history WHERE memory_id = :id ORDER BY changed_at", id=now.id
            )
            states = connection.execute(
                "SELECT * FROM memory_status_history WHERE memory_id = ? ORDER BY changed_at", [was["id"]]
            ).fetchall()
            assert [line.id.hex for line in history] == [line["id"] for line in states]
            assert [line.changed_at for line in history] == [utc(line["changed_at"]) for line in states]
            assert [line.old_state for line in history] == [None] + [line["old_state"] for line in states[1:]]
            assert [line.new_state for line in history] == [line["new_state"] for line in states]
            logs = await stored(
                services,
                "SELECT l.*, a.name AS app FROM memory_access_logs AS l JOIN apps AS a ON a.id = l.app_id"
                " WHERE memory_id = :id ORDER BY accessed_at",
                id=now.id,
            )
            lines = connection.execute(
                "SELECT l.*, a.name AS app FROM memory_access_logs AS l JOIN apps AS a ON a.id = l.app_id"
                " WHERE memory_id = ? ORDER BY accessed_at",
                [was["id"]],
            ).fetchall()
            assert [(log.id.hex, log.app, log.access_type, log.accessed_at, log.metadata) for log in logs] == [
                (line["id"], line["app"], line["access_type"], utc(line["accessed_at"]), json.loads(line["metadata"]))
                for line in lines
            ]
        apps = await client.call("GET", "/api/v1/apps", params={"user_id": user, "page_size": 100})
        active = {app["name"]: app["is_active"] for app in apps["apps"]}
        assert (active["claude"], active["cursor"]) == (True, name == "bob")
        rules = (await client.call("GET", "/api/v1/grants", params={"user_id": user}))["grants"]
        assert [(rule["app"], rule["effect"], rule["object_type"]) for rule in rules] == [("cursor", "deny", "memory")]
        [taken] = [taken for taken in migration.report.users if taken.user == user]
        assert taken.found.policies == 1
        assert taken.service is not None
        assert taken.service["policies"] == 1
        policies = await client.call("GET", "/api/v1/archive-policies", params={"user_id": user})
        found = [(policy["criteria_type"], policy["criteria_name"], policy["days_to_archive"]) for policy in
                 policies["policies"]]  # fmt: skip
        assert found == [("app", "claude", 90)]
        connection.close()


@pytest.mark.slow
async def test_a_second_run_takes_nothing_twice_and_leaves_what_was_changed_since(
    services: Services, client: Client, bring: Any, renamed: Any, new_user: str, tmp_path: Path
) -> None:
    old, ids = household(tmp_path / "openmemory.db")
    renamed(old)
    await bring(old.path)
    user = f"bob-{new_user}"
    changed = {"user_id": user, "memory_content": "Corrected since"}
    await client.call("PUT", f"/api/v1/memories/{ids['bob 0']}", body=changed)
    again = await bring(old.path)
    bob = next(taken for taken in again.report.users if taken.user == user)
    assert bob.service is not None
    assert (bob.service["memories"]["added"], bob.service["memories"]["skipped"]) == (0, 5)
    whole = await client.call("GET", f"/api/v1/memories/{ids['bob 0']}", params={"user_id": user})
    assert whole["text"] == "Corrected since"
    await bring(old.path, mode="overwrite")
    whole = await client.call("GET", f"/api/v1/memories/{ids['bob 0']}", params={"user_id": user})
    assert whole["text"] == "bob 0 ☕"


async def test_what_the_service_refuses_is_told_and_the_rest_is_there(
    client: Client, bring: Any, new_user: str, tmp_path: Path
) -> None:
    old = Installation(tmp_path / "openmemory.db")
    user = old.user(new_user)
    app = old.app(user, "claude")
    secret = old.memory(user, app, "My key is sk-ant-api03-" + "A1b2" * 24)
    old.memory(user, app, "Harmless")
    twin = old.memory(user, app, "Harmless")
    migration = await bring(old.path)
    [taken] = migration.report.users
    assert not migration.report.whole
    assert taken.service is not None
    assert str(secret) in {row["id"] for row in taken.service["left_out"] if row["kind"] == "memory"}
    assert "sk-ant" not in json.dumps(migration.report.as_json())
    assert taken.service["memories"]["archived_duplicates"] == 1
    states = set()
    for state in ("active", "archived"):
        found = await client.call("GET", "/api/v1/memories", params={"user_id": new_user, "state": state})
        states |= {(item["content"], item["state"]) for item in found["items"]}
    assert states == {("Harmless", "active"), ("Harmless", "archived")}
    assert twin


async def test_an_export_goes_to_its_own_user_or_to_another(
    client: Client, bring: Any, renamed: Any, new_user: str, tmp_path: Path
) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    renamed(old)
    archives(old.path, tmp_path / "out")
    path = tmp_path / "out" / f"alice-{new_user}.zip"
    for into, user in ((None, f"alice-{new_user}"), (f"carol-{new_user}", f"carol-{new_user}")):
        migration = await bring(path, into=into)
        assert migration.report.whole, migration.report.as_json()
        params = {"user_id": user, "state": "active,paused,archived,deleted"}
        assert (await client.call("GET", "/api/v1/memories", params=params))["total"] == 5


async def test_memories_of_mem0_are_there_with_their_ids_times_threads_and_categories(
    client: Client, bring: Any, new_user: str, tmp_path: Path
) -> None:
    id_ = "0f0e8f2c-7d0b-4f6e-9a53-0d6f2b1c3a4d"
    item = {"id": id_, "memory": "Drinks tea", "user_id": new_user, "agent_id": "coach", "run_id": "monday",
            "created_at": "2025-06-10T07:58:11-07:00", "categories": ["food"], "metadata": {"a": 1}}  # fmt: skip
    (tmp_path / "mem0.json").write_text(json.dumps({"results": [item]}))
    migration = await bring(tmp_path / "mem0.json", "mem0")
    assert migration.report.whole, migration.report.as_json()
    found = await client.call("GET", f"/api/v1/memories/{id_}", params={"user_id": new_user})
    expected = {"text": "Drinks tea", "app_name": "coach", "thread_id": "monday", "categories": ["food"],
                "metadata_": {"a": 1, "agent_id": "coach"}, "state": "active"}  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["created_at"] == int(datetime(2025, 6, 10, 14, 58, 11, tzinfo=UTC).timestamp())


@pytest.mark.slow
async def test_a_running_server_gives_its_export_and_the_log_of_accesses(
    services: Services, client: Client, bring: Any, renamed: Any, new_user: str, tmp_path: Path
) -> None:
    old, ids = household(tmp_path / "openmemory.db")
    renamed(old)
    connection = sqlite3.connect(old.path)
    busy = ids["alice 0"].hex
    [app] = connection.execute("SELECT app_id FROM memory_access_logs WHERE memory_id = ?", [busy]).fetchone()
    connection.executemany(
        "INSERT INTO memory_access_logs VALUES (?, ?, ?, '2025-05-02 10:00:00.000000', 'search', '{}')",
        [(uuid4().hex, busy, app) for _ in range(150)],
    )
    connection.commit()
    server = OldServer(old.path)
    server.failing = 2
    async with served(server.app) as url:
        migration = await bring(url, user=f"alice-{new_user}")
        with pytest.raises(NotFound, match="has no user 'nobody'"):
            await bring(url, user="nobody")
    assert migration.report.whole, migration.report.as_json()
    [taken] = migration.report.users
    assert taken.found.access_logs == 160
    assert ("access-log", str(ids["alice 4"])) in server.asked, "deleted memories have a log too"
    [row] = await stored(
        services, "SELECT count(*) AS n FROM memory_access_logs WHERE memory_id = :id", id=ids["alice 0"]
    )
    assert row.n == 152
    apps = await client.call("GET", "/api/v1/apps", params={"user_id": f"alice-{new_user}"})
    assert {app["name"]: app["is_active"] for app in apps["apps"]}["cursor"] is False
    async with served(OldServer(old.path, exports=False).app) as url:
        with pytest.raises(SetupError, match="too old to export"):
            await bring(url, user=f"alice-{new_user}")


@pytest.mark.slow
async def test_a_server_of_ours_is_a_source_too(client: Client, bring: Any, new_user: str) -> None:
    body = {"user_id": new_user, "text": "To be moved", "infer": False}
    await client.call("POST", "/api/v1/memories", body=body)
    search = {"user_id": new_user, "query": "moved", "app": "claude"}
    assert (await client.call("POST", "/api/v1/memories/search", body=search))["results"]
    migration = await bring(str(client.http.base_url), user=new_user, into=f"{new_user}-2")
    assert migration.report.whole, migration.report.as_json()
    [taken] = migration.report.users
    assert taken.service is not None
    assert (taken.service["memories"]["added"], taken.service["memories"]["renamed"]) == (1, 1)
    assert taken.found.access_logs >= 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_bulk")
async def test_a_collection_of_mem0_is_read_from_qdrant_page_by_page(
    client: Client, bring: Any, new_user: str, tmp_path: Path
) -> None:
    async with served(QdrantRestApi(tmp_path / "qdrant")) as url, httpx.AsyncClient(base_url=url) as qdrant:
        made = await qdrant.put("/collections/mem0", json={"vectors": {"size": 2, "distance": "Cosine"}})
        assert made.status_code == 200
        points = [
            {
                "id": number if number % 2 else str(uuid4()),
                "vector": [1, number],
                "payload": {"data": f"Fact {number}", "user_id": f"{new_user}-{number % 3}", "hash": "ab",
                            "created_at": "2025-06-10T07:58:11-07:00", "mcp_client": "cursor", "topic": "facts"},
            }
            for number in range(600)
        ]  # fmt: skip
        points.append({"id": 5_000, "vector": [1, 1], "payload": {"user_id": f"{new_user}-0"}})
        for some in range(0, len(points), 200):
            body = {"points": points[some : some + 200]}
            answer = await qdrant.put("/collections/mem0/points", params={"wait": "true"}, json=body)
            assert answer.status_code == 200, answer.text
        first = await bring(f"{url}/mem0", "mem0")
        again = await bring(f"{url}/mem0", "mem0")
        with pytest.raises(NotFound, match="has no collection 'other'"):
            await bring(f"{url}/other", "mem0")
    assert [taken.user for taken in first.report.users] == [f"{new_user}-{number}" for number in range(3)]
    assert [taken.service["memories"]["added"] for taken in first.report.users] == [200, 200, 200]
    assert first.report.left_out.total == 1
    assert [taken.service["memories"]["skipped"] for taken in again.report.users] == [200, 200, 200]
    params = {"user_id": f"{new_user}-1", "search_query": "Fact 301"}
    [item] = (await client.call("GET", "/api/v1/memories", params=params))["items"]
    assert (item["app_name"], item["metadata_"]) == ("cursor", {"mcp_client": "cursor", "topic": "facts"})


@pytest.mark.slow
def test_the_command_reports_and_ends_with_a_code_that_says_how_it_went(
    run: Callable[..., Any], request: pytest.FixtureRequest, renamed: Any, new_user: str, tmp_path: Path
) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    renamed(old)
    there = ["--data-dir", str(request.getfixturevalue("served"))]
    dry = run("import", "openmemory", str(old.path), "--dry-run", "--data-dir", str(tmp_path / "none"))
    assert dry.returncode == 0, dry.stderr
    assert f"alice-{new_user}: 5 memories (2 active, 1 paused, 1 archived, 1 deleted); 2 apps" in dry.stdout
    assert "Nothing was imported (--dry-run)." in dry.stdout
    assert not (tmp_path / "none").exists()
    whole = run("import", "openmemory", str(old.path), "--json", *there)
    assert whole.returncode == 0, whole.stderr
    told = json.loads(whole.stdout)
    assert [user["service"]["memories"]["added"] for user in told["users"]] == [5, 5]
    again = run("import", "openmemory", str(old.path), "--user", f"bob-{new_user}", *there)
    assert again.returncode == 0, again.stderr
    assert "5 already here" in again.stdout
    line = f"OPENMEMORY_ACCESS_DEFAULT_USER=bob-{new_user}"
    assert line in again.stdout, "the only user is not the default one, of whom the old page asks"
    assert "OPENMEMORY_ACCESS_DEFAULT_USER" not in whole.stdout + dry.stdout
    connection = sqlite3.connect(old.path)
    connection.execute("UPDATE memories SET created_at = 'yesterday' WHERE content LIKE 'bob 0%'")
    connection.commit()
    partly = run(
        "import", "openmemory", str(old.path), "--user", f"bob-{new_user}", "--into", f"rob-{new_user}", *there
    )
    assert partly.returncode == 1
    assert "Left out: 1 of memories: created_at: must be a time in ISO 8601, or seconds since 1970." in partly.stdout
    for arguments, code in {
        ("import", "openmemory", str(tmp_path / "nothing.zip")): 2,
        ("import", "openmemory", "http://127.0.0.1:9"): 3,
        ("import", "something", str(old.path)): 2,
        ("import", str(tmp_path / "notes.jsonl"), "--dry-run"): 2,
        ("import", "mem0", str(tmp_path)): 2,
    }.items():
        failed = run(*arguments, *there)
        assert failed.returncode == code, failed.stderr
        assert len(failed.stderr.splitlines()) == 1, failed.stderr
        assert failed.stderr.startswith("openmemory: ")


async def test_policies_of_a_database_go_to_whom_they_are_about_and_the_others_are_told(
    bring: Any, new_user: str, tmp_path: Path
) -> None:
    old, ids = household(tmp_path / "openmemory.db")
    with sqlite3.connect(old.path) as connection:
        add = "INSERT INTO archive_policies (id, criteria_type, criteria_id, days_to_archive) VALUES (?, ?, ?, ?)"
        for sort, about, days in (
            ("user", ids["alice"], 10), ("user", ids["bob"], 10), ("category", ids["work"], 20), ("app", None, 30),
            ("app", uuid4(), 30), ("all", ids["alice"], 30), ("user", ids["alice"], 0),
        ):  # fmt: skip
            connection.execute(add, [uuid4().hex, sort, None if about is None else about.hex, days])
    migration = await bring(old.path, user="alice", into=new_user)
    [taken] = migration.report.users
    # The user's, that about the category, and that about the app which the household has.
    assert (taken.found.policies, taken.service["policies"], taken.service["left_out"]) == (3, 3, [])
    reasons = {reason for (kind, reason) in migration.report.left_out.counts if kind == "archive_policies"}
    assert reasons == {
        "criteria_id: is missing, so the user of the policy is unknown", "its app is missing",
        "criteria_type: must be user, app or category",
        "days_to_archive: must be from 1 to 36,500",
    }  # fmt: skip
    assert not migration.report.whole
    again = await bring(old.path, user="alice", into=new_user)
    assert (again.report.users[0].service["policies"], again.report.notes) == (0, migration.report.notes)


async def test_a_migration_that_left_a_policy_behind_does_not_say_it_took_everything(
    bring: Any, new_user: str, tmp_path: Path
) -> None:
    """Exit codes: 0 all of it, 1 something was left out."""
    old, _ = household(tmp_path / "openmemory.db")
    migration = await bring(old.path, user="alice", into=new_user)
    [taken] = migration.report.users
    assert migration.report.whole is (taken.service["policies"] == taken.found.policies)


async def test_what_tells_no_time_is_the_same_at_every_run(bring: Any, new_user: str, tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    user = old.user(new_user, email=None)
    old.memory(user, old.app(user, "claude"), "of no time", created_at=None, updated_at=None)
    old.connection.close()
    first = await bring(old.path, mode="overwrite")
    assert first.report.users[0].service["memories"]["added"] == 1
    again = await bring(old.path, mode="overwrite")
    memories = again.report.users[0].service["memories"]
    assert (memories["replaced"], memories["unchanged"]) == (0, 1)


def one_user(path: Path, name: str) -> dict[str, Any]:
    """An installation with one user, whose apps are the default one and `claude`. With the ids by name."""
    old = Installation(path)
    ids: dict[str, Any] = {"user": old.user(name)}
    for app in ("openmemory", "claude"):
        ids[app] = old.app(ids["user"], app)
        ids[f"{app}'s memory"] = old.memory(ids["user"], ids[app], f"Written by {app}")
    return ids


async def ids_here(services: Services, user: str) -> dict[str, Any]:
    rows = await stored(
        services,
        "SELECT u.id AS user_id, a.name, a.id FROM users AS u JOIN apps AS a ON a.owner_id = u.id"
        " WHERE u.user_id = :user",
        user=user,
    )
    return {"user": rows[0].user_id} | {row.name: row.id for row in rows}


async def test_a_user_without_data_gets_the_ids_of_the_source_and_so_do_the_apps(
    services: Services,
    client: Client,
    bring: Any,
    new_user: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    elsewhere = Directory(services.database, services.settings.access)  # that of another process
    for directory in (services.directory, elsewhere):
        former = await directory.caller(new_user, None, owner=True)
    ids = one_user(tmp_path / "openmemory.db", new_user)
    migration = await bring(tmp_path / "openmemory.db")
    assert migration.report.whole, migration.report.as_json()
    answer(migration.report).show(json=False)
    told = capsys.readouterr().out
    assert f"With the ids of the source, because nothing here referred to them yet: user {new_user}, app op" in told
    assert "Still with the ids" not in told

    for directory in (services.directory, elsewhere):
        now = await directory.caller(new_user, None, owner=True)
        assert (now.user_id, now.app_id) == (ids["user"], ids["openmemory"])
    mine = {"user_id": new_user}
    apps = await client.call("GET", "/api/v1/apps", params=mine)
    assert {app["name"]: app["id"] for app in apps["apps"]} == {
        name: str(ids[name]) for name in ("openmemory", "claude")
    }
    for name in ("openmemory", "claude"):
        found = await client.call("GET", "/api/v1/memories", params=mine | {"app_id": str(ids[name])})
        assert [item["id"] for item in found["items"]] == [str(ids[f"{name}'s memory"])]
        of_app = await client.call("GET", f"/api/v1/apps/{ids[name]}/memories")
        assert [memory["id"] for memory in of_app["memories"]] == [str(ids[f"{name}'s memory"])]
    added = await client.call("POST", "/api/v1/memories", body=mine | {"text": "Written since", "infer": False})
    assert added["app_id"] == str(ids["openmemory"])
    [event] = await stored(
        services, "SELECT detail FROM audit_events WHERE user_id = :id AND event = 'memory.import'", id=ids["user"]
    )
    assert event.detail["former_user_id"] == str(former.user_id)


async def test_a_user_with_data_keeps_the_present_ids_and_the_report_says_so(
    services: Services,
    client: Client,
    bring: Any,
    new_user: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await client.call("POST", "/api/v1/memories", body={"user_id": new_user, "text": "Here before", "infer": False})
    before = await ids_here(services, new_user)
    ids = one_user(tmp_path / "openmemory.db", new_user)
    migration = await bring(tmp_path / "openmemory.db")
    assert migration.report.whole, migration.report.as_json()
    after = await ids_here(services, new_user)
    assert after == before | {"claude": ids["claude"]}
    answer(migration.report).show(json=False)
    told = capsys.readouterr().out
    assert f"Still with the ids they had here, not those of the source: user {new_user}, app openmemory." in told
    assert "With the ids of the source" not in told
    found = await client.call("GET", "/api/v1/memories", params={"user_id": new_user})
    assert found["total"] == 3


async def test_anything_that_refers_to_the_present_ids_keeps_them(
    services: Services, client: Client, bring: Any, new_user: str, tmp_path: Path
) -> None:
    await client.call("POST", "/api/v1/grants", body={"user_id": new_user, "effect": "deny", "app": "openmemory",
                                                      "object_type": "all"})  # fmt: skip
    before = await ids_here(services, new_user)
    ids = one_user(tmp_path / "openmemory.db", new_user)
    migration = await bring(tmp_path / "openmemory.db")
    [taken] = migration.report.users
    assert taken.service is not None
    assert taken.service["kept_ids"] == [f"user {new_user}", "app openmemory"]
    assert taken.service["adopted_ids"] == []
    assert await ids_here(services, new_user) == before | {"claude": ids["claude"]}


async def test_ids_that_somebody_has_are_not_given_to_another(
    services: Services, bring: Any, new_user: str, tmp_path: Path
) -> None:
    ids = one_user(tmp_path / "openmemory.db", new_user)
    await bring(tmp_path / "openmemory.db")
    migration = await bring(tmp_path / "openmemory.db", into=f"{new_user}-2")
    assert migration.report.whole, migration.report.as_json()
    assert await ids_here(services, new_user) == {name: ids[name] for name in ("user", "openmemory", "claude")}
    assert not set(ids.values()) & set((await ids_here(services, f"{new_user}-2")).values())


async def test_a_key_of_one_user_chooses_no_id_for_them(
    services: Services, bring: Any, new_user: str, tmp_path: Path
) -> None:
    one_user(tmp_path / "openmemory.db", new_user)
    archives(tmp_path / "openmemory.db", tmp_path / "out")
    bound = Principal("token:x", "a token", user=new_user)
    caller = await services.directory.owner(bound, None)
    with (tmp_path / "out" / f"{new_user}.zip").open("rb") as file:
        spool = Spool(tmp_path)
        spool.file.write(file.read())
    report = await services.backup.restore(caller, spool, "skip")
    assert report.kept_ids == [f"user {new_user}"]
    assert (await ids_here(services, new_user))["user"] == caller.user_id
