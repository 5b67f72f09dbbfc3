"""What is read of an old installation, and what archive becomes of it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import pickle
import shutil
import sqlite3
import tempfile
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from openmemory.doors.cli.migrating import ImportRequest, Migration
from openmemory.doors.cli.migration_report import answer
from openmemory.errors import Invalid, SetupError, Unavailable
from openmemory.importers import sqlite_file
from openmemory.importers.archive import UserArchive
from openmemory.importers.staging import OLD_TABLES, Staging
from tests.doors.cli.installation import Installation, household


def quiet(_done: int, _total: int | None) -> None:
    pass


def staged(path: Path, folder: Path) -> Staging:
    staging = Staging(folder)
    sqlite_file.stage(path, staging, folder, quiet)
    staging.settle()
    return staging


def archives(path: Path, folder: Path) -> dict[str, zipfile.ZipFile]:
    """The archive of every user."""
    folder.mkdir(exist_ok=True)
    staging = staged(path, folder)
    found = {}
    for id_, name in staging.users():
        UserArchive(staging, id_).write(folder / f"{name}.zip", quiet)
        found[name] = zipfile.ZipFile(folder / f"{name}.zip")
    staging.close()
    return found


def tables(zipped: zipfile.ZipFile) -> dict[str, Any]:
    return json.loads(zipped.read("memories.json"))


def lines(zipped: zipfile.ZipFile, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(zipped.read(name)).splitlines()]


async def dry(source: Path | str, kind: Any = "openmemory", **more: Any) -> Migration:
    migration = Migration(ImportRequest(kind, str(source), dry_run=True, **more), "default_user", None)
    await migration.run()
    return migration


def prints(folder: Path) -> dict[str, str]:
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}


@pytest.mark.parametrize("dashed", [False, True])
def test_every_row_of_every_table_is_in_the_archive_of_its_user(tmp_path: Path, dashed: bool) -> None:
    old, ids = household(tmp_path / "openmemory.db", dashed=dashed)
    found = archives(old.path, tmp_path / "out")
    assert sorted(found) == ["alice", "bob"]
    alice = tables(found["alice"])
    assert list(alice) == ["user", "apps", "categories", "memories", "memory_categories", "status_history",
                           "access_controls", "archive_policies", "export_meta"]  # fmt: skip
    assert alice["user"] == {
        "id": str(ids["alice"]), "user_id": "alice", "name": "alice", "email": "alice@example.com",
        "metadata": {"since": 2025}, "created_at": "2025-05-01T12:31:15.123456+00:00",
        "updated_at": "2025-05-01T12:31:15.123456+00:00",
    }  # fmt: skip
    assert {(app["name"], app["is_active"]) for app in alice["apps"]} == {("claude", True), ("cursor", False)}
    assert {app["owner_id"] for app in alice["apps"]} == {str(ids["alice"])}
    memories = {memory["id"]: memory for memory in alice["memories"]}
    assert set(memories) == {str(ids[f"alice {number}"]) for number in range(5)}
    archived = memories[str(ids["alice 3"])]
    assert (archived["content"], archived["metadata"], archived["state"]) == ("alice 3 ☕", {"n": 3}, "archived")
    assert archived["app_id"] == str(ids["alice claude"])
    assert archived["category_ids"] == [str(ids["work"])]
    assert archived["archived_at"].endswith("+00:00")
    assert archived["deleted_at"] is None
    assert [category["name"] for category in alice["categories"]] == ["work"]
    assert len(alice["memory_categories"]) == 5
    assert len(alice["status_history"]) == 8
    assert {line["changed_by"] for line in alice["status_history"]} == {str(ids["alice"])}
    assert [(rule["subject_id"], rule["object_id"], rule["effect"]) for rule in alice["access_controls"]] == [
        (str(ids["alice cursor"]), str(ids["alice 0"]), "deny")
    ]
    assert [policy["criteria_id"] for policy in alice["archive_policies"]] == [str(ids["alice claude"])]
    assert alice["export_meta"]["version"] == "1"
    logs = lines(found["alice"], "access_logs.jsonl.gz")
    assert len(logs) == 10
    assert {log["access_type"] for log in logs} == {"search", "list"}
    assert all(UUID(log["memory_id"]) in {ids[f"alice {number}"] for number in range(5)} for log in logs)


@pytest.mark.parametrize("wal", [False, True])
def test_reading_changes_nothing_of_the_installation_not_even_beside_it(tmp_path: Path, wal: bool) -> None:
    home = tmp_path / "old"
    home.mkdir()
    if wal:
        live = tmp_path / "live"
        live.mkdir()
        _, ids = household(live / "openmemory.db")
        writer = sqlite3.connect(live / "openmemory.db")
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("UPDATE memories SET content = 'only in the log' WHERE id = ?", [ids["alice 0"].hex])
        writer.commit()
        # As a killed container leaves it: the last writes are in the log alone.
        for name in ("openmemory.db", "openmemory.db-wal"):
            shutil.copyfile(live / name, home / name)
        writer.close()
    else:
        _, ids = household(home / "openmemory.db")
    before = prints(home)
    for file in home.iterdir():
        file.chmod(0o444)
    home.chmod(0o555)
    found = archives(home / "openmemory.db", tmp_path / "out")
    assert prints(home) == before
    contents = {memory["id"]: memory["content"] for memory in tables(found["alice"])["memories"]}
    assert contents[str(ids["alice 0"])] == ("only in the log" if wal else "alice 0 ☕")
    home.chmod(0o755)


def test_what_cannot_be_taken_is_left_out_by_itself_with_its_reason(tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    user = old.user("alice")
    app = old.app(user, "claude")
    good = old.memory(user, app, "Good")
    old.memory(uuid4(), app, "Nobody's")
    old.memory(user, app, "   ")
    old.connection.execute(
        "INSERT INTO memories (id, user_id, app_id, content) VALUES ('none', ?, ?, 'x')", [user.hex, app.hex]
    )
    old.memory(user, app, "Strange state", "frozen")
    old.memory(user, app, "Strange time", created_at="yesterday")
    old.connection.execute("UPDATE memories SET metadata = '[1]' WHERE content = 'Good'")
    orphan = old.memory(user, uuid4(), "Its app is gone")
    old.access(uuid4(), app)
    old.access(good, uuid4())
    old.rule(None, "deny", None)
    old.rule(app, "maybe", None)
    old.connection.commit()
    alice = tables(archives(old.path, tmp_path / "out")["alice"])
    (tmp_path / "again").mkdir()
    staging = staged(old.path, tmp_path / "again")
    assert [(memory["content"], memory["id"]) for memory in alice["memories"]] == [("Its app is gone", str(orphan))]
    assert {app["name"] for app in alice["apps"]} == {"claude", "openmemory"}
    reasons = set(staging.skipped_rows().counts)
    assert reasons >= {
        ("memories", "its user is missing"), ("memories", "content: must not be empty"),
        ("memories", "id: must be a UUID"),
        ("memories", "state: must be one of active, paused, archived, deleted"),
        ("memories", "created_at: must be a time in ISO 8601, or seconds since 1970"),
        ("memories", "metadata: must be a JSON object"),
        ("memory_access_logs", "its memory is missing"),
        ("access_controls", "subject_id: must be the id of an app; OpenMemory never applied this rule"),
        ("access_controls", "effect: must be allow or deny"),
    }  # fmt: skip
    assert staging.notes() == ["1 memories whose app is missing are imported under the app openmemory."]
    assert not [row for row in staging.skipped_rows().first_rows if "Nobody" in str(row)]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_a_memory_is_not_lost_for_a_number_that_json_does_not_know(tmp_path: Path, number: str) -> None:
    """SQLAlchemy wrote metadata with `json.dumps`, which writes NaN."""
    old = Installation(tmp_path / "openmemory.db")
    user = old.user("alice")
    memory = old.memory(user, old.app(user, "claude"), "still there")
    old.connection.execute(
        "UPDATE memories SET metadata = ? WHERE id = ?", [f'{{"score": {number}, "in": [1.5, {number}]}}', memory.hex]
    )
    old.connection.commit()
    [row] = tables(archives(old.path, tmp_path / "out")["alice"])["memories"]
    assert (row["id"], row["metadata"]) == (str(memory), {"score": None, "in": [1.5, None]})
    (tmp_path / "again").mkdir()
    left_out = staged(old.path, tmp_path / "again").skipped_rows()
    assert (left_out.total, left_out.mended) == (0, {"memories": 2})


async def test_null_for_a_number_that_json_does_not_know_is_told_and_is_no_loss(tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    users = {name: old.user(name) for name in ("alice", "bob")}
    for user in users.values():
        old.memory(user, old.app(user, "claude"), "scored", metadata={"score": float("nan"), "n": 2**70})
    old.memory(uuid4(), uuid4(), "nobody's", metadata={"score": float("inf")})
    gone = (await dry(old.path)).report
    assert (gone.left_out.total, gone.left_out.mended) == (2, {"memories": 2}), "what is lost is not mended"
    old.connection.execute("DELETE FROM memories WHERE content LIKE 'nobody%'")
    old.connection.execute("DELETE FROM memory_status_history WHERE memory_id NOT IN (SELECT id FROM memories)")
    old.connection.commit()
    both, one = (await dry(old.path)).report, (await dry(old.path, user="alice")).report
    assert (both.whole, one.whole) == (True, True)
    assert (both.as_json()["mended"], one.as_json()["mended"]) == ({"memories": 2}, {"memories": 1})


@pytest.mark.parametrize("written", ["NaN", "1e999", "-Infinity"])
async def test_a_number_that_is_none_in_what_mem0_wrote_is_told_too(tmp_path: Path, written: str) -> None:
    (tmp_path / "mem0.json").write_text(
        f'[{{"id": 1, "memory": "scored", "user_id": "alice", "metadata": {{"a": [{written}]}}}}]'
    )
    report = (await dry(tmp_path / "mem0.json", "mem0")).report
    assert (report.whole, report.left_out.mended) == (True, {"memories": 1})
    assert report.users[0].found.memories["active"] == 1


def test_an_app_of_anothers_name_becomes_the_users_own(tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    alice, bob = old.user("alice"), old.user("bob")
    own, others = old.app(alice, "claude"), old.app(bob, "claude")
    old.memory(alice, own, "Mine")
    strange = old.memory(alice, others, "Written by bob's")
    old.rule(others, "deny", None)
    old.rule(others, "deny", strange)
    found = archives(old.path, tmp_path / "out")
    mine = tables(found["alice"])
    assert [app["id"] for app in mine["apps"]] == [str(own)]
    assert {memory["app_id"] for memory in mine["memories"]} == {str(own)}
    assert [rule["object_id"] for rule in mine["access_controls"]] == [str(strange)]
    assert [rule["object_id"] for rule in tables(found["bob"])["access_controls"]] == [None]


async def test_a_dry_run_tells_what_would_be_taken_and_asks_no_service(tmp_path: Path) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    report = (await dry(old.path)).report
    assert [(taken.user, taken.into) for taken in report.users] == [("alice", "alice"), ("bob", "bob")]
    found = report.users[0].found
    assert found.memories == {"active": 2, "paused": 1, "archived": 1, "deleted": 1}
    counts = (found.apps, found.categories, found.history, found.access_logs, found.rules, found.policies)
    assert counts == (2, 1, 8, 10, 1, 1)
    assert report.notes == [
        "The configuration is not imported, because it may contain keys; `openmemory config` shows the current one."
    ]
    assert report.whole


async def test_one_user_may_be_chosen_and_renamed(tmp_path: Path) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    report = (await dry(old.path, user="bob", into="robert")).report
    assert [(taken.user, taken.into) for taken in report.users] == [("bob", "robert")]
    with pytest.raises(Invalid, match="must be a user of the source, not 'carol'; it has alice, bob"):
        await dry(old.path, user="carol")
    with pytest.raises(Invalid, match="select one with --user"):
        await dry(old.path, into="robert")


def broken_of(old: Installation, name: str) -> None:
    """A user, and rows of theirs in every table that cannot be taken, each for a reason of its own."""
    user, gone = old.user(name), uuid4()
    app = old.app(user, "claude")
    good = old.memory(user, app, "Good")
    bad = old.memory(user, app, "Strange time", created_at="yesterday")
    old.access(bad, app)
    old.access(good, gone)
    old.access(gone, app)
    old.file_under(bad, old.category("filed by it"))
    lost = old.category(f"lost of {name}")
    old.file_under(good, lost)
    old.rule(app, "maybe", None)
    old.rule(None, "deny", good)
    for sort, about, days in (("app", app, 0), ("user", user, 0), ("category", lost, 0)):
        old.insert("archive_policies", criteria_type=sort, criteria_id=about, days_to_archive=days)
    broken = old.app(user, "broken")
    old.rule(broken, "deny", None)
    old.memory(user, broken, "Its app is gone")
    old.connection.execute("UPDATE apps SET metadata = '[]' WHERE id = ?", [broken.hex])
    old.connection.execute("UPDATE categories SET created_at = 'never' WHERE id = ?", [lost.hex])
    old.connection.commit()


async def test_of_one_user_only_their_own_losses_are_told(tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    alice = old.user("alice")
    old.memory(alice, old.app(alice, "claude"), "Good")
    broken_of(old, "bob")
    report = (await dry(old.path, user="alice")).report
    assert report.whole, report.as_json()["left_out"]
    assert (report.left_out.total, report.left_out.nobodys, report.notes) == (0, 0, [])
    bobs, all_of_them = (await dry(old.path, user="bob")).report, (await dry(old.path)).report
    assert not bobs.whole
    assert bobs.left_out == all_of_them.left_out, "nobody else lost anything"
    assert {kind for kind, _ in bobs.left_out.counts} == set(OLD_TABLES) - {"users"}
    assert bobs.left_out.nobodys == 0
    assert bobs.notes == ["1 memories whose app is missing are imported under the app openmemory."]
    broken_of(old, "carol")
    both = (await dry(old.path)).report.left_out
    assert both.total == 2 * bobs.left_out.total
    assert (await dry(old.path, user="bob")).report.left_out == bobs.left_out
    assert (await dry(old.path, user="alice")).report.whole


async def test_what_may_be_anybodys_counts_for_everybody_and_the_report_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = Installation(tmp_path / "openmemory.db")
    for name in ("alice", "bob"):
        user = old.user(name)
        old.memory(user, old.app(user, "claude"), "Good")
    old.insert("archive_policies", criteria_type="app", criteria_id=None, days_to_archive=3)
    old.access(uuid4(), uuid4())
    old.connection.execute("UPDATE categories SET name = ''")
    empty = old.category("")
    for asked in ({}, {"user": "alice"}, {"user": "bob"}):
        report = (await dry(old.path, **asked)).report
        assert not report.whole
        assert (report.left_out.total, report.left_out.nobodys) == (3, 3)
        assert report.as_json()["left_out"]["nobodys"] == 3
        assert {row["id"] for row in report.left_out.first_rows if row["kind"] == "categories"} == {empty.hex}
    answer(report).show(json=False)
    assert "The user of 3 of them is unknown, so they are in the report of every user." in capsys.readouterr().out


async def test_the_memories_of_a_user_who_cannot_be_taken_are_nobody_elses_loss(tmp_path: Path) -> None:
    old = Installation(tmp_path / "openmemory.db")
    for name in ("alice", "bob"):
        user = old.user(name, created_at="never" if name == "bob" else old.moment())
        memory = old.memory(user, old.app(user, "claude"), "Good")
        old.access(memory, uuid4())
    assert (await dry(old.path, user="alice")).report.left_out.counts == {
        ("memory_access_logs", "its app is missing"): 1
    }
    assert {kind for kind, _ in (await dry(old.path)).report.left_out.counts} == {
        "users", "apps", "memories", "memory_status_history", "memory_access_logs"
    }  # fmt: skip


async def test_what_is_no_installation_is_refused_in_words(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_text('{"text": "x"}')
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (a)").connection.close()
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\x00" + os.urandom(8192))
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04" + os.urandom(100))
    for name, said in {
        "notes.jsonl": "must be an export of OpenMemory", "other.db": "it has no table users, apps, memories",
        "broken.db": "cannot be read", "broken.zip": "Invalid zip file", "nothing.zip": "No such file",
        ".": "must be a file, not a folder",
    }.items():  # fmt: skip
        with pytest.raises(SetupError, match=said):
            await dry(tmp_path / name)


async def test_without_a_temporary_folder_an_import_says_what_to_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(SetupError, match="An import needs a temporary folder") as refused:
        await dry(tmp_path / "openmemory.db")
    assert "TMPDIR" in str(refused.value.hint)


async def test_an_export_of_our_own_writing_is_counted_as_it_was_written(tmp_path: Path) -> None:
    old, _ = household(tmp_path / "openmemory.db")
    archives(old.path, tmp_path / "out")
    whole = (await dry(tmp_path / "out" / "alice.zip")).report.users[0]
    assert whole == (await dry(old.path)).report.users[0]


MEM0 = [
    {"id": str(uuid4()), "memory": "Drinks tea", "hash": "x", "metadata": {"source": "chat"}, "user_id": "alice",
     "created_at": "2025-06-10T07:58:11.123456-07:00", "updated_at": None, "categories": ["food", "habits"]},
    {"id": str(uuid4()), "memory": "Runs at six", "user_id": "alice", "agent_id": "coach", "run_id": "monday",
     "created_at": "2025-06-11T00:00:00"},
    {"id": 17, "data": "Nobody's in particular"},
    {"id": str(uuid4()), "memory": "", "user_id": "alice"},
    "no object",
]  # fmt: skip


@pytest.mark.parametrize("form", ["list", "results", "marked"])
async def test_an_export_of_mem0_becomes_memories_apps_threads_and_categories(tmp_path: Path, form: str) -> None:
    content = json.dumps(MEM0 if form == "list" else {"relations": [{"a": 1}], "results": MEM0}, indent=2)
    path = tmp_path / "mem0.json"
    path.write_text(("\ufeff \n" if form == "marked" else "") + content, encoding="utf-8")
    migration = await dry(path, "mem0")
    alice, default = migration.report.users
    assert (alice.user, alice.found.memories["active"], alice.found.apps, alice.found.categories) == ("alice", 2, 2, 2)
    assert (default.user, default.found.memories["active"]) == ("default_user", 1)
    assert migration.report.left_out.counts[("memories", "content: must not be empty")] == 1
    assert migration.report.left_out.counts[("memories", "must be a JSON object")] == 1


async def test_the_fields_of_mem0_are_kept(tmp_path: Path) -> None:
    from openmemory.importers.mem0 import Mem0

    staging = Staging(tmp_path)
    mem0 = Mem0(staging, user="default_user")
    for item in MEM0[:3]:
        assert isinstance(item, dict)
        mem0.take(item)
    staging.settle()
    users = {name: id_ for id_, name in staging.users()}
    UserArchive(staging, users["alice"]).write(tmp_path / "a.zip", quiet)
    found = tables(zipfile.ZipFile(tmp_path / "a.zip"))
    memories = {memory["content"]: memory for memory in found["memories"]}
    tea, run = memories["Drinks tea"], memories["Runs at six"]
    assert (tea["id"], tea["metadata"]) == (MEM0[0]["id"], {"source": "chat"})  # type: ignore[index]
    assert tea["created_at"] == tea["updated_at"] == "2025-06-10T14:58:11.123456+00:00"
    assert (run["thread_id"], run["metadata"]) == ("monday", {"agent_id": "coach"})
    names = {app["id"]: app["name"] for app in found["apps"]}
    assert (names[tea["app_id"]], names[run["app_id"]]) == ("mem0", "coach")
    assert {(line["old_state"], line["new_state"]) for line in found["status_history"]} == {(None, "active")}


async def test_a_folder_of_pickled_points_is_refused_and_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "sprung",))

    collection = tmp_path / "qdrant" / "collection" / "mem0"
    collection.mkdir(parents=True)
    with sqlite3.connect(collection / "storage.sqlite") as stored:
        stored.execute("CREATE TABLE points (id TEXT PRIMARY KEY, point BLOB)")
        stored.execute("INSERT INTO points VALUES ('1', ?)", [pickle.dumps(Trap())])
    with pytest.raises(SetupError, match="pickled") as refused:
        await dry(tmp_path / "qdrant", "mem0")
    assert "docs/migrating-from-openmemory.md" in str(refused.value.hint)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_installation(tmp_path: Path) -> None:
    peaks = []
    for count in (2_000, 20_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        old = Installation(folder / "openmemory.db")
        user = old.user("alice")
        app = old.app(user, "claude")
        rows = [(uuid4().hex, user.hex, app.hex, f"Memory {n} " + "x" * 200, "active") for n in range(count)]
        old.connection.executemany(
            "INSERT INTO memories (id, user_id, app_id, content, state, metadata) VALUES (?, ?, ?, ?, ?, '{}')", rows
        )
        old.connection.commit()
        del rows
        tracemalloc.start()
        archives(old.path, folder / "out")["alice"].close()
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 1_000_000, peaks


@pytest.mark.slow
async def test_a_server_that_is_not_there_is_told_as_one(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    for kind, source in (("openmemory", f"http://127.0.0.1:{port}"), ("mem0", f"http://127.0.0.1:{port}/mem0")):
        with pytest.raises(Unavailable):
            await dry(source, kind)
    with pytest.raises(Invalid, match="name of the collection"):
        await dry(f"http://127.0.0.1:{port}", "mem0")
