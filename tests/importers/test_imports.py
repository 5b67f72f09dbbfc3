"""Files of other programs, imported by the service: whose memories go where, and what stays of a file."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from openmemory.embedded.folder import temporary
from openmemory.errors import Forbidden, Invalid, OpenMemoryError
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal, Scope
from openmemory.importers import service as imports
from openmemory.importers.service import FileImport, FileReport
from openmemory.importers.source import FileKind
from openmemory.services import Services
from openmemory.uploads.spool import Spool
from tests.doors.cli.installation import Installation, household
from tests.importers.hostile import HOSTILE

TRY = FileImport(dry_run=True)
IMPORT = FileImport()

Bring = Callable[..., Awaitable[FileReport]]


@pytest.fixture
def bring(services: Services, owner: Caller) -> Bring:
    """Imports bytes as the test's user, whose credential is of every user."""

    async def run(content: bytes, wanted: FileImport = IMPORT, *, caller: Caller = owner) -> FileReport:
        spool = Spool(services.stores.folder)
        spool.write(content)
        return await services.imports.import_file(caller, spool, wanted)

    return run


@pytest.fixture
def names(new_user: str) -> tuple[str, str]:
    return f"alice-{new_user}", f"bob-{new_user}"


@pytest.fixture
def database(tmp_path: Path, new_user: str) -> bytes:
    """The database of an installation of two users."""
    old, _ = household(tmp_path / "openmemory.db")
    with sqlite3.connect(old.path) as connection:
        connection.execute("UPDATE users SET user_id = user_id || ?, email = NULL", [f"-{new_user}"])
    connection.close()
    return old.path.read_bytes()


def of_one(path: Path, name: str, count: int = 3) -> bytes:
    """The database of an installation of one user."""
    old = Installation(path)
    user = old.user(name)
    app = old.app(user, "claude")
    rows = [(uuid4().hex, user.hex, app.hex, f"{name} {number}", "active") for number in range(count)]
    old.connection.executemany(
        "INSERT INTO memories (id, user_id, app_id, content, state) VALUES (?, ?, ?, ?, ?)", rows
    )
    old.connection.commit()
    old.connection.close()
    return path.read_bytes()


async def texts(services: Services, user: str) -> set[str]:
    query = "SELECT content FROM memories AS m JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user"
    async with services.database.transaction() as tx:
        return set(await tx.scalars(text(query), {"user": user}))


async def exists(services: Services, user: str) -> bool:
    async with services.database.transaction() as tx:
        return bool(await tx.scalar(text("SELECT count(*) FROM users WHERE user_id = :user"), {"user": user}))


def left_behind(services: Services) -> list[str]:
    return [each.name for each in temporary(services.stores.folder).iterdir()]


async def test_everybody_of_a_database_is_imported_under_their_names(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str]
) -> None:
    report = await bring(database)
    assert report.kind is FileKind.DATABASE
    assert report.users == dict.fromkeys(names, 5)
    assert [(each.user, each.into, each.error) for each in report.imported] == [(name, name, None) for name in names]
    for each in report.imported:
        assert each.found.by_app == {"cursor": 3, "claude": 2}
        assert each.report is not None
        assert each.report.memories.added == 5
        assert f"user {each.user}" in each.report.adopted_ids
        assert len(await texts(services, each.into)) == 5
    assert report.notes
    assert left_behind(services) == []
    again = await bring(database)
    assert [each.report and each.report.memories.skipped for each in again.imported] == [5, 5]


async def test_a_dry_run_reports_the_same_and_makes_nobody(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str]
) -> None:
    tried = await bring(database, TRY)
    assert not await exists(services, names[0])
    assert left_behind(services) == []
    done = await bring(database)
    assert [(each.found, each.report) for each in tried.imported] == [
        (each.found, each.report) for each in done.imported
    ]


async def test_a_single_user_goes_to_the_caller_or_to_whom_is_named(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str], owner: Caller
) -> None:
    [taken] = (await bring(database, FileImport(user=names[0]))).imported
    assert (taken.user, taken.into) == (names[0], owner.user)
    assert len(await texts(services, owner.user)) == 5
    other = f"robert-{owner.user}"
    [taken] = (await bring(database, FileImport(user=names[1], into=other))).imported
    assert taken.into == other
    assert len(await texts(services, other)) == 5


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"user": "carol"}, "of: must be a user of the file, not 'carol'; it has alice-"),
        ({"into": "robert"}, "into: is for one user, but the file has 2; choose one of them"),
    ],
)
async def test_a_choice_that_the_file_does_not_allow_is_refused(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str], more: dict[str, Any], words: str
) -> None:
    with pytest.raises(Invalid, match=words):
        await bring(database, FileImport(**more))
    assert not await exists(services, names[0])
    assert left_behind(services) == []


async def test_a_name_that_no_user_may_have_is_an_error_of_that_user_alone(
    services: Services, bring: Bring, tmp_path: Path, names: tuple[str, str]
) -> None:
    old = Installation(tmp_path / "openmemory.db")
    for name in (names[0], "x" * 5_000):
        user = old.user(name)
        old.memory(user, old.app(user, "claude"), "a text")
    report = await bring(old.path.read_bytes())
    assert [each.error is None for each in report.imported] == [True, False]
    assert "into: has 5,000 characters" in str(report.imported[1].error)
    assert await texts(services, names[0]) == {"a text"}


def bound(user: str, **more: Any) -> Principal:
    return Principal("key:x", "a key", user=user, **more)


async def test_a_key_of_one_user_imports_for_this_user_only(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str], new_user: str
) -> None:
    caller = await services.directory.owner(bound(new_user), None)
    tried = await bring(database, TRY, caller=caller)
    assert (tried.users, tried.imported) == (dict.fromkeys(names, 5), [])
    with pytest.raises(Invalid, match="of: must name one of the file's users: alice-"):
        await bring(database, caller=caller)
    with pytest.raises(Forbidden):
        await bring(database, FileImport(user=names[0], into=names[0]), caller=caller)
    assert not await exists(services, names[0])
    [taken] = (await bring(database, FileImport(user=names[0]), caller=caller)).imported
    assert (taken.into, taken.error) == (new_user, None)
    assert len(await texts(services, new_user)) == 5


async def test_a_key_of_a_user_of_the_file_takes_their_own_part(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str]
) -> None:
    caller = await services.directory.owner(bound(names[1]), None)
    [taken] = (await bring(database, caller=caller)).imported
    assert (taken.user, taken.into, taken.error) == (names[1], names[1], None)
    assert not await exists(services, names[0])


@pytest.mark.parametrize(
    "about",
    [{"app": "claude"}, {"namespaces": ("home",)}, {"scopes": frozenset({Scope.READ})}],
    ids=lambda each: next(iter(each)),
)
async def test_who_may_not_write_everything_of_the_user_imports_nothing(
    services: Services, bring: Bring, tmp_path: Path, new_user: str, about: dict[str, Any]
) -> None:
    await services.directory.caller(new_user, None, owner=True)
    caller = await services.directory.owner(bound(new_user, **about), None)
    with pytest.raises(Forbidden):
        await bring(of_one(tmp_path / "openmemory.db", new_user), caller=caller)
    assert await texts(services, new_user) == set()
    assert left_behind(services) == []


async def test_memories_of_mem0_that_name_nobody_are_the_callers(
    services: Services, bring: Bring, new_user: str
) -> None:
    items: list[Any] = [
        {"id": str(uuid4()), "memory": "Drinks tea", "agent_id": "coach", "created_at": "2025-06-10T07:58:11"},
        {"id": 7, "memory": ""},
        "no object",
    ]
    report = await bring(json.dumps({"results": items}, indent=1).encode())
    [taken] = report.imported
    assert (report.kind, taken.user, taken.into, taken.found.by_app) == (
        FileKind.MEM0,
        new_user,
        new_user,
        {"coach": 1},
    )
    assert await texts(services, new_user) == {"Drinks tea"}
    assert report.left_out.counts == {
        ("memories", "content: must not be empty"): 1,
        ("memories", "must be a JSON object"): 1,
    }


async def test_an_archive_of_ours_is_imported_too(
    services: Services, bring: Bring, tmp_path: Path, new_user: str
) -> None:
    from tests.doors.cli.test_migrating import archives

    of_one(tmp_path / "openmemory.db", new_user)
    archives(tmp_path / "openmemory.db", tmp_path / "out")
    content = (tmp_path / "out" / f"{new_user}.zip").read_bytes()
    [tried] = (await bring(content, TRY)).imported
    assert (tried.user, tried.found.by_app) == (new_user, {"claude": 3})
    assert await texts(services, new_user) == set()
    [taken] = (await bring(content)).imported
    assert taken.report == tried.report
    assert len(await texts(services, new_user)) == 3


async def test_a_database_whose_log_was_written_into_it_is_read(
    services: Services, bring: Bring, tmp_path: Path, new_user: str
) -> None:
    path = tmp_path / "openmemory.db"
    of_one(path, new_user)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.close()
    [taken] = (await bring(path.read_bytes())).imported
    assert taken.report is not None
    assert taken.report.memories.added == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_refused_in_words_and_leaves_nothing(
    services: Services, bring: Bring, tmp_path: Path, new_user: str, name: str
) -> None:
    made, words = HOSTILE[name]
    content = made(tmp_path / "openmemory.db", new_user)
    for wanted in (TRY, IMPORT):
        with pytest.raises(OpenMemoryError, match=words):
            await bring(content, wanted)
        assert left_behind(services) == []
    assert await texts(services, new_user) == set()


async def test_a_generated_column_is_not_computed(
    services: Services, bring: Bring, tmp_path: Path, new_user: str
) -> None:
    path = tmp_path / "openmemory.db"
    of_one(path, new_user)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE memories RENAME COLUMN content TO was")
        connection.execute("ALTER TABLE memories ADD COLUMN content AS (hex(zeroblob(20000000 + length(id))))")
    connection.close()
    report = await bring(path.read_bytes())
    assert report.left_out.counts["memories", "content: is missing"] == 3
    assert await texts(services, new_user) == set()


async def test_reading_ends_when_it_takes_too_long(
    services: Services, bring: Bring, database: bytes, names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "_READING", -60.0)
    for content in (database, b'[{"memory": "Drinks tea"}]'):
        with pytest.raises(Invalid, match=r"file: took more than -?\d+ seconds to read"):
            await bring(content)
    assert not await exists(services, names[0])
    assert left_behind(services) == []


async def test_a_file_of_too_many_users_names_the_command(bring: Bring) -> None:
    items = [{"id": number, "memory": "x", "user_id": f"user {number}"} for number in range(imports.MAX_USERS + 1)]
    with pytest.raises(Invalid, match="file: has 1,001 users; at most 1,000 are imported here") as refused:
        await bring(json.dumps(items).encode())
    assert "openmemory import" in str(refused.value.hint)


async def test_rows_that_need_more_room_than_an_archive_may_are_refused(
    services: Services, bring: Bring, tmp_path: Path, new_user: str
) -> None:
    content = of_one(tmp_path / "openmemory.db", new_user, 2_000)
    small = services.settings.limits.model_copy(update={"backup": 16_384})
    spool = Spool(services.stores.folder)
    spool.write(content)
    caller = await services.directory.owner(bound(new_user), None)
    refusing = imports.Imports(services.backup, services.directory, folder=services.stores.folder, limits=small)
    with pytest.raises(Invalid, match="database or disk is full"):
        await refusing.import_file(caller, spool, IMPORT)
    assert left_behind(services) == []


async def test_an_import_that_is_cancelled_leaves_nothing(
    services: Services, bring: Bring, tmp_path: Path, new_user: str, eventually: Callable[..., Awaitable[None]]
) -> None:
    content = of_one(tmp_path / "openmemory.db", new_user, 30_000)
    importing = asyncio.create_task(bring(content))

    async def reading() -> bool:
        return left_behind(services) != []

    await eventually(reading)
    importing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await importing
    assert left_behind(services) == []
    assert await texts(services, new_user) == set()
