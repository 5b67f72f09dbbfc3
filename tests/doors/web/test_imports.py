"""Files imported at the page, without scripts: the check first, then the import."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from openmemory.access.schemas import KeyCreate
from openmemory.embedded.folder import temporary
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.doors.cli.installation import Installation, household
from tests.doors.rest.conftest import MakeClient
from tests.doors.web.conftest import Visitor
from tests.importers.hostile import HOSTILE

SECRET = "AKIA" + "IOSFODNN7EXAMPL3"

Send = Callable[..., Awaitable[str]]


@pytest.fixture
def send(visitor: Visitor) -> Send:
    """Sends a file with the form of the page, and returns the words of the answer."""

    async def run(content: bytes, *, status: int = 200, name: str = "openmemory.db", **fields: str) -> str:
        await visitor.get("settings/archives")
        token = re.search(r'name="token" value="(\w+)"', visitor.shown)
        assert token
        answer = await visitor.http.post(
            "/ui/settings/archives",
            params={"user": visitor.user},
            data={"token": token[1]} | fields,
            files={"file": (name, content)},
        )
        assert answer.status_code == status, answer.text
        visitor.shown = answer.text
        return visitor.words

    return run


@pytest.fixture
def database(tmp_path: Path, new_user: str) -> bytes:
    """The database of an installation of two users, whose names begin with that of the visitor."""
    old, _ = household(tmp_path / "openmemory.db")
    with closing(sqlite3.connect(old.path)) as connection, connection:
        connection.execute("UPDATE users SET user_id = ? || '-' || user_id, email = NULL", [new_user])
    return old.path.read_bytes()


async def memories_of(visitor: Visitor, user: str, *, status: int = 200) -> str:
    answer = await visitor.http.get("/ui/memories", params={"user": user, "state": "any"})
    assert answer.status_code == status, answer.text
    return answer.text


@pytest.mark.slow
async def test_a_database_is_checked_and_then_imported(visitor: Visitor, send: Send, database: bytes) -> None:
    alice, bob = f"{visitor.user}-alice", f"{visitor.user}-bob"
    words = await send(database)
    assert "An import would do this. Nothing was imported." in words
    assert "The file is a database of OpenMemory." in words
    for name in (alice, bob):
        assert (
            f"{name} 5 memories in the file: 2 active, 1 paused, 1 archived, 1 deleted. By cursor 3, claude 2." in words
        )
        assert f"user {name} would get the id that it has in the file." in words
        await memories_of(visitor, name, status=404)
    assert "The configuration is not imported" in words
    assert f'<option value="{alice}">' in visitor.shown
    words = await send(database, do="import", of="", into="", mode="skip")
    assert "Nothing was imported." not in words
    assert "Memories added 5" in words
    assert f"user {bob} got the id that it has in the file." in words
    [href] = re.findall(rf'href="([^"]*memories\?user={alice})"', visitor.shown)
    shown = await visitor.http.get(urljoin("/ui/settings/archives", href), params={"user": alice, "state": "any"})
    assert "alice 0 ☕" in shown.text
    assert f'memories?user={alice}&amp;app=claude&amp;state=any">claude</a> 2' in visitor.shown
    assert "Memories here already, left 5" in await send(database, do="import")


@pytest.mark.slow
async def test_one_user_of_a_database_is_imported_into_another(visitor: Visitor, send: Send, database: bytes) -> None:
    alice, bob = f"{visitor.user}-alice", f"{visitor.user}-bob"
    words = await send(database, of=alice)
    assert f"{alice} into the memory of {visitor.user} 5 memories" in words
    assert f'<option value="{alice}" selected>' in visitor.shown
    assert f'name="into" value="{visitor.user}"' in visitor.shown
    await send(database, do="import", of=alice, into=f"{visitor.user}-robert")
    assert "alice 0 ☕" in await memories_of(visitor, f"{visitor.user}-robert")
    assert "into: is for one user, but the file has 2" in await send(database, status=422, into="robert")
    words = await send(database, status=422, of="nobody")
    assert f"of: must be a user of the file, not 'nobody'; it has {alice}, {bob}" in words


@pytest.mark.slow
async def test_what_is_left_out_is_told_with_its_reason(
    visitor: Visitor, send: Send, tmp_path: Path, new_user: str
) -> None:
    old = Installation(tmp_path / "openmemory.db")
    user = old.user(new_user)
    app = old.app(user, "<b>claude</b>")
    old.memory(user, app, f"My AWS key is {SECRET}")
    old.memory(user, app, "Strange time", created_at="yesterday")
    old.memory(user, app, "Good")
    old.connection.close()
    for do in ("try", "import"):
        words = await send(old.path.read_bytes(), do=do)
        assert "Memories added 1" in words
        assert "Memories left out 1" in words
        assert "text: looks like it holds an AWS access key" in words
        assert "1 of memories: created_at: must be a time in ISO 8601, or seconds since 1970" in words
        assert "<b>claude</b> 2" in words
        assert "<b>claude" not in visitor.shown
        assert SECRET not in visitor.shown


@pytest.mark.slow
async def test_memories_of_mem0_are_imported(visitor: Visitor, send: Send) -> None:
    content = b'{"results": [{"id": 1, "memory": "Drinks tea", "agent_id": "coach"}]}'
    assert "The file is memories of mem0 as JSON." in await send(content, name="memories.json")
    assert "Memories added 1" in await send(content, name="memories.json", do="import")
    assert "Drinks tea" in await memories_of(visitor, visitor.user)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_file_is_refused_in_words(
    visitor: Visitor, send: Send, services: Services, tmp_path: Path, name: str
) -> None:
    made, words = HOSTILE[name]
    content = made(tmp_path / "openmemory.db", visitor.user)
    status = 400 if "zip" in name or name == "bomb" else 422
    assert re.search(words, await send(content, status=status, do="import"))
    assert [*temporary(services.stores.folder).iterdir()] == []
    assert "Nothing is remembered yet" in await send_list(visitor)


async def send_list(visitor: Visitor) -> str:
    await visitor.get("memories")
    return visitor.words


async def test_a_file_over_the_limit_is_refused_with_its_setting(make_client: MakeClient, new_user: str) -> None:
    async with make_client(limits={"body": 2_000, "backup": 100_000}) as http:
        token = re.search(r'name="token" value="(\w+)"', (await http.get("/ui/settings/archives")).text)
        assert token
        for size in (100_001, 300_000):
            answer = await http.post(
                "/ui/settings/archives",
                data={"token": token[1]},
                files={"file": ("a.db", b"SQLite format 3\x00" + b"x" * (size - 16))},
            )
            assert answer.status_code == 413
            assert "100,000" in answer.text or "165,536" in answer.text
            assert "limits.backup" in answer.text


async def test_a_key_of_one_user_chooses_whose_memories_become_theirs(
    make_client: MakeClient, services: Services, database: bytes, new_user: str
) -> None:
    key = await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test", "user_id": new_user}))
    alice = f"{new_user}-alice"
    address = "http://memory.example:8765"
    async with make_client(base_url=address, access={"require": "always"}, host="0.0.0.0") as http:
        http.headers["Origin"] = address
        await http.post("/ui/sign-in", data={"key": key.key})

        async def sent(status: int = 200, **fields: Any) -> str:
            token = re.search(r'name="token" value="(\w+)"', (await http.get("/ui/settings/archives")).text)
            assert token
            answer = await http.post(
                "/ui/settings/archives",
                data={"token": token[1]} | fields,
                files={"file": ("openmemory.db", database)},
            )
            assert answer.status_code == status, answer.text
            return answer.text

        shown = await sent()
        assert "Choose whose memories to import" in shown
        assert f'<option value="{alice}">' in shown
        assert 'name="into"' not in shown
        assert "of: must name one of the file" in await sent(422, do="import")
        await sent(403, do="import", of=alice, into=alice)
        await sent(do="import", of=alice)
        assert "alice 0 ☕" in (await http.get("/ui/memories", params={"state": "any"})).text
