"""What goes out comes in again, and nothing is lost: neither of the archive nor of what was there."""

from __future__ import annotations

import asyncio
import base64
import gzip
import io
import json
import zipfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import numpy as np
import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.capture.schemas import CaptureCreate
from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.index.generations.backfill import VectorBackfill
from openmemory.memories.lifecycle.schemas import PolicyCreate
from openmemory.memories.schemas import MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.projects.schemas import NewCheckpoint, NewProject, NewValue
from openmemory.services import INDEXED_TABLES, Services, open_services
from openmemory.sources.schemas import NewDocument, NewFile, NewMessage, NewMessages, NewSession
from tests.backup.archives import (
    Upstream,
    bring_in,
    compressed,
    export,
    lines_of,
    members,
    new_id,
    send,
    tables_of,
    zipped,
)
from tests.backup.conftest import client_of
from tests.clusters import furnish
from tests.sources.text_extraction.documents import send_document

AllOf = Callable[[Services, str], Awaitable[dict[str, Any]]]


async def populate(services: Services, user: str) -> Caller:
    """A user with something in every table and every column."""
    owner = await services.directory.caller(user, None, owner=True)
    claude = await services.directory.caller(user, "claude")
    cursor = await services.directory.caller(user, "cursor")
    ids = {}
    for number, state in enumerate(State):
        new = MemoryCreate(
            text=f"{user}: a memory that is {state}, with\ttabs, \\backslashes\n, quotes \" and ünïcode 🦙",
            metadata={"nested": {"list": [1, 2.5, None, True, "a\\b"]}, "n": number},
            namespace="webshop", thread_id="t-1", kind="decision", key=f"k{number}", importance=0.25,
            categories=(f"food of {user}", f"work of {user}"),
        )  # fmt: skip
        ids[state] = (await services.memories.add(claude, new)).id
        if state is not State.ACTIVE:
            await services.memories.change_state(owner, [ids[state]], state)
    plain = (await services.memories.add(cursor, MemoryCreate(text=f"{user}: drinks tea"))).id
    await services.memories.update(owner, plain, MemoryUpdate(text=f"{user}: drinks coffee", metadata={"v": 2}))
    await services.memories.update(cursor, plain, MemoryUpdate(text=f"{user}: drinks water"))
    await services.memories.get(claude, plain)
    for number in (1, 2):
        state = NewCheckpoint({"of": user, "number": number}, f"{user}: step {number}.", "webshop")
        saved = await services.states.checkpoint(claude, state)
    await services.values.set(claude, NewValue("team", "lead", f"Zoe leads {user}.", "webshop"))
    await services.links.link(claude, saved.memory_id, "explains", plain)
    root = NewProject("webshop", "The shop", root="/srv/shop", repo="git@example.com:shop.git", branch="main")
    await services.projects.register(claude, root)
    async with services.database.transaction() as tx:
        mine = {"user": owner.user_id, "plain": plain, "other": ids[State.ACTIVE]}
        await tx.execute(
            text(
                """
                UPDATE users SET name = 'Somebody', email = :email, metadata = '{"theme": "dark"}' WHERE id = :user
                """
            ),
            {"user": owner.user_id, "email": f"{user}@example.com"},
        )
        await tx.execute(
            text(
                """
                UPDATE apps SET description = 'An editor', metadata = '{"v": 1}', is_active = name <> 'cursor'
                WHERE owner_id = :user AND name <> 'openmemory'
                """
            ),
            mine,
        )
        await tx.execute(
            text(
                """
                INSERT INTO anchors (user_id, namespace, head, commit, reachable)
                SELECT :user, 'webshop', repeat('a', 40), repeat(letter, 40), letter = 'b'
                FROM unnest(ARRAY['b', 'c']) AS letter
                """
            ),
            mine,
        )
        await tx.execute(
            text("UPDATE categories SET description = 'What is eaten' WHERE name = :name"), {"name": f"food of {user}"}
        )
        await tx.execute(
            text(
                """
                UPDATE memories SET superseded_by = :other, valid_from = '2026-01-01T00:00:00.5Z',
                    valid_until = '2030-01-01Z', expires_at = '2031-01-01Z' WHERE id = :plain
                """
            ),
            mine,
        )
    for rule in (
        GrantCreate(effect="deny", app="claude", object_type="memory", object=str(plain)),
        GrantCreate(effect="allow", app="claude", object_type="app", object="cursor"),
        GrantCreate(effect="deny", app=None, object_type="namespace", object="private"),
        GrantCreate(effect="deny", app="cursor", object_type="category", object=f"work of {user}"),
        GrantCreate(effect="allow", app="claude", object_type="all"),
        GrantCreate(effect="deny", app="not there yet", object_type="all"),
    ):
        await services.grants.create(owner, rule)
    for criteria_type, name in (("user", None), ("app", "cursor"), ("category", f"work of {user}"), ("namespace", "w")):
        policy = PolicyCreate(criteria_type=criteria_type, criteria_name=name, days_to_archive=30)  # type: ignore[arg-type]
        await services.policies.create(owner, policy)
        both = {"days_to_archive": None, "days_to_expire": 4_000}
        await services.policies.create(owner, policy.model_copy(update=both))
    for name in (f"bees of {user}", f"work of {user}", "health"):
        await services.descriptions.describe(owner, name, f"What {name} is about.")
    await services.captures.add(claude, CaptureCreate(MemoryCreate(text="I moved."), wait=False))
    may = datetime(2026, 5, 1, tzinfo=UTC)
    said = [
        NewMessage(f"{user}: how about tea?\twith\nmilk \\ 🦙", "Ada", "m-1", may, {"n": 1}),
        NewMessage("Rather coffee.", "assistant"),
    ]
    for thread in ("chat", "gone", "over"):
        new = NewMessages(thread, [*said], "webshop", f"About {thread}", ttl_days=400)
        await services.conversations.add(claude, new)
    await services.conversations.add(owner, NewMessages("chat", [*said]))
    await services.conversations.close(owner, "over", title="Tea", summary="Coffee it is.")
    await services.conversations.delete(owner, "gone")
    guide = f"# {user}\n\nHow about tea?\n\n## Milk\n\nNever.\n"
    await services.files.store(claude, "webshop", [NewFile("docs/tea.md", guide), NewFile("empty.py", "")])
    session = NewSession(7, f"{user} and tea", "Coffee it is.", f"## Why\n\n\n{user} likes it.\n\nMore.", "webshop")
    await services.sessions.save(claude, session)
    lease = NewDocument("lease.md", "home", "Where we live")
    await send_document(services, claude, lease, f"# Lease\n\n{user} may have pets.\n".encode())
    brief = (await services.memories.add(claude, MemoryCreate(text=f"{user}: for a while", ttl_days=1))).id
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE memories SET expires_at = now() WHERE id = :id"), {"id": brief})
    await services.archiving.run()
    await delivered(services, owner)
    return owner


async def delivered(services: Services, owner: Caller) -> None:
    """Deliver everything of a user, also what failed and waits for its next attempt."""
    waiting = text("SELECT count(*) FROM index_outbox WHERE user_id = :user")
    async with asyncio.timeout(30):
        while True:
            await services.outbox_delivery.drain()
            async with services.database.statement() as tx:
                if not await tx.scalar(waiting, {"user": owner.user_id}):
                    return
            await asyncio.sleep(0.05)


def said_of(everything: dict[str, Any]) -> tuple[Any, ...]:
    """What a user has said about themself."""
    [me] = everything["users"]
    return me["name"], me["email"], me["metadata"]


@pytest.mark.slow
async def test_a_new_data_folder_has_everything_with_the_same_ids(
    services: Services, api: httpx.AsyncClient, new_user: str, all_of: AllOf, short_folder: Path
) -> None:
    await populate(services, new_user)
    archive = await export(api, new_user)
    expected = await all_of(services, new_user)
    assert all(expected.values())
    assert said_of(expected) == ("Somebody", f"{new_user}@example.com", {"theme": "dark"})
    # Of the two that are active; of the others too if they were delivered before they were put away.
    vectors = len(expected["embeddings"])
    assert vectors >= 2
    settings = {"data_dir": str(furnish(short_folder / f"fresh-{new_user}")), "access": {"default_user": new_user}}

    async def elsewhere() -> tuple[dict[str, Any], dict[str, Any], bytes]:
        async with open_services(Settings.model_validate(settings)) as fresh, client_of(fresh) as client:
            report = await bring_in(client, new_user, archive)
            await fresh.outbox_delivery.drain()
            return report, await all_of(fresh, new_user), await export(client, new_user)

    report, found, again = await asyncio.create_task(elsewhere())
    assert report["left_out"] == []
    assert (report["memories"]["added"], report["rules"], report["vectors"], report["policies"]) == (10, 6, vectors, 8)
    assert (report["captures"], report["descriptions"]) == (1, 3)
    assert found == expected
    one, two = tables_of(archive), tables_of(again)
    for kind in (
        "memories",
        "memory_categories",
        "status_history",
        "access_controls",
        "categories",
        "archive_policies",
    ):
        assert [row["id"] for row in two[kind] if "id" in row] == [row["id"] for row in one[kind] if "id" in row]
    assert lines_of(again, "vectors.jsonl.gz") == lines_of(archive, "vectors.jsonl.gz")


async def test_another_user_of_the_same_service_has_everything_under_other_ids(
    services: Services, api: httpx.AsyncClient, new_user: str, user: str, all_of: AllOf
) -> None:
    other = f"{new_user}-other"
    await services.directory.caller(other, None, owner=True)
    await populate(services, new_user)
    archive = await export(api, new_user)
    expected = await all_of(services, new_user)
    report = await bring_in(api, other, archive)
    assert (report["memories"]["added"], report["memories"]["renamed"]) == (10, 10)
    found = await all_of(services, other)
    assert said_of(found) == ("Somebody", None, {"theme": "dark"})  # an address is one user's
    assert found | {"users": expected["users"]} == expected
    assert await all_of(services, new_user) == expected
    twice = await bring_in(api, other, archive)
    assert twice["memories"] == dict.fromkeys(twice["memories"], 0) | {"unchanged": 10}
    assert twice["kept_ids"] == ["app claude", "app cursor", "app not there yet", "app openmemory"]
    told = ("memories", "left_out", "kept_ids")
    assert {name: count for name, count in twice.items() if count and name not in told} == {}
    assert await all_of(services, other) == found


async def test_nothing_is_embedded_again(services: Services, api: httpx.AsyncClient, new_user: str) -> None:
    other = f"{new_user}-other"
    owner = await services.directory.caller(other, None, owner=True)
    await populate(services, new_user)
    asked: list[str] = []
    embedder = services.spaces.serving.embedder
    before = embedder.documents

    async def documents(texts: Any) -> Any:
        asked.extend(texts)
        return await before(texts)

    archive = await export(api, new_user)
    embedder.documents = documents  # type: ignore[method-assign]
    try:
        await bring_in(api, other, archive)
        await services.outbox_delivery.drain()
    finally:
        del embedder.documents
    assert asked == []
    assert await services.index.count(owner.user_id) == 5  # the state has no vector
    answer = await api.post("/api/v1/memories/search", json={"user_id": other, "query": "drinks water"})
    assert answer.json()["results"][0]["memory"] == f"{new_user}: drinks water"


async def test_without_vectors_they_are_made_again(services: Services, api: httpx.AsyncClient, new_user: str) -> None:
    other = f"{new_user}-other"
    await services.directory.caller(other, None, owner=True)
    await populate(services, new_user)
    archive = await export(api, new_user, include_vectors=False)
    assert "vectors.jsonl.gz" not in members(archive)
    report = await bring_in(api, other, archive)
    assert report["vectors"] == 0
    await services.outbox_delivery.drain()
    answer = await api.post("/api/v1/memories/search", json={"user_id": other, "query": "which beverage"})
    assert answer.json()["search_method"] == "hybrid"
    assert all(result["parts"]["cosine"] for result in answer.json()["results"])
    assert await services.index.count((await services.directory.caller(other, None, owner=True)).user_id) == 5


async def revisions(api: httpx.AsyncClient, user: str, memory: str) -> list[tuple[int, str | None, str]]:
    answer = await api.get(f"/api/v1/memories/{memory}/history", params={"user_id": user})
    assert answer.status_code == 200, answer.text
    return [(each["revision"], each["old_text"], each["new_text"]) for each in answer.json()["revisions"]]


async def states(api: httpx.AsyncClient, user: str, memory: str) -> list[tuple[str | None, str]]:
    answer = await api.get(f"/api/v1/memories/{memory}/history", params={"user_id": user})
    return [(each["old_state"], each["new_state"]) for each in answer.json()["states"]]


async def test_bringing_back_an_older_text_keeps_the_newer_ones_in_the_history(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    memory = (await services.memories.add(caller, MemoryCreate(text="one"))).id
    old = await export(api, user)
    await services.memories.update(caller, memory, MemoryUpdate(text="two"))
    new = await export(api, user)
    report = await bring_in(api, user, old)
    assert report["memories"]["replaced"] == 1
    assert await revisions(api, user, str(memory)) == [(1, None, "one"), (2, "one", "two"), (3, "two", "one")]
    # And the newer archive again: what it knows is there already, so the change alone is added.
    await bring_in(api, user, new)
    found = await revisions(api, user, str(memory))
    assert found[:3] == [(1, None, "one"), (2, "one", "two"), (3, "two", "one")]
    assert found[-1][2] == "two"


async def test_a_newer_archive_goes_on_where_the_history_ends(
    services: Services, api: httpx.AsyncClient, new_user: str, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    memory = (await services.memories.add(caller, MemoryCreate(text="one"))).id
    old = await export(api, user)
    await services.memories.update(caller, memory, MemoryUpdate(text="two"))
    await services.memories.change_state(caller, [memory], State.ARCHIVED)
    new = await export(api, user)
    other = f"{user}-other"
    await services.directory.caller(other, None, owner=True)
    await bring_in(api, other, old)
    await bring_in(api, other, new)
    [row] = tables_of(await export(api, other))["memories"]
    assert (row["content"], row["state"], row["revision"]) == ("two", "archived", 2)
    assert await revisions(api, other, row["id"]) == [(1, None, "one"), (2, "one", "two")]
    assert await states(api, other, row["id"]) == [(None, "active"), ("active", "archived")]


async def test_what_was_changed_on_both_sides_is_all_in_the_history(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    memory = (await services.memories.add(caller, MemoryCreate(text="one"))).id
    other = f"{user}-other"
    there = await services.directory.caller(other, None, owner=True)
    await bring_in(api, other, await export(api, user))
    [row] = tables_of(await export(api, other))["memories"]
    await services.memories.update(there, row["id"], MemoryUpdate(text="theirs"))
    await services.memories.update(caller, memory, MemoryUpdate(text="ours"))
    await services.memories.update(caller, memory, MemoryUpdate(text="ours, later"))
    await bring_in(api, other, await export(api, user))
    assert await revisions(api, other, row["id"]) == [
        (1, None, "one"), (2, "one", "theirs"), (3, "theirs", "ours"), (4, "ours", "ours, later"),
    ]  # fmt: skip


async def test_skip_leaves_what_is_there_and_adds_the_rest(
    services: Services, api: httpx.AsyncClient, user: str, all_of: AllOf
) -> None:
    archive = Upstream()
    kept, new = archive.memory("as it was"), archive.memory("a new one")
    archive.tables["memories"].pop()
    await bring_in(api, user, archive.zip())
    changed = Upstream()
    changed.tables["user"]["id"] = changed.user_id = archive.user_id
    changed.memory("as it is", id=kept, state="archived", categories=[changed.category("some")])
    changed.memory("a new one", id=new)
    before = await all_of(services, user)
    report = await bring_in(api, user, changed.zip(), params={"mode": "skip"})
    assert (report["memories"]["skipped"], report["memories"]["added"]) == (1, 1)
    after = await all_of(services, user)
    assert [row for row in after["memories"] if row["content"] != "a new one"] == before["memories"]
    assert {row["content"] for row in after["memories"]} == {"as it was", "a new one"}


async def test_texts_may_change_places(services: Services, api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    one, two = archive.memory("left"), archive.memory("right")
    await bring_in(api, user, archive.zip())
    for row in archive.tables["memories"]:
        row["content"] = "right" if row["id"] == one else "left"
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["replaced"], report["memories"]["archived_duplicates"]) == (2, 0)
    found = {row["id"]: (row["content"], row["state"]) for row in tables_of(await export(api, user))["memories"]}
    assert found == {one: ("right", "active"), two: ("left", "active")}


async def test_a_second_active_memory_of_the_same_text_comes_in_archived(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    present = (await services.memories.add(caller, MemoryCreate(text="said before"))).id
    archive = Upstream()
    twin = archive.memory("said before")
    first = archive.memory("said twice", created_at="2025-01-01T00:00:00Z")
    second = archive.memory("said twice", created_at="2025-01-02T00:00:00Z")
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["memories"]["archived_duplicates"]) == (3, 2)
    found = {row["id"]: row["state"] for row in tables_of(await export(api, user))["memories"]}
    assert found == {str(present): "active", twin: "archived", first: "active", second: "archived"}
    assert (await states(api, user, twin))[-1] == (None, "archived")
    again = await bring_in(api, user, archive.zip())
    assert (again["memories"]["unchanged"], again["memories"]["archived_duplicates"]) == (3, 2)


async def test_an_expired_memory_does_not_stand_in_the_way(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    present = (await services.memories.add(caller, MemoryCreate(text="said before"))).id
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE memories SET expires_at = now() WHERE id = :id"), {"id": present})
    archive = Upstream()
    new = archive.memory("said before")
    await bring_in(api, user, archive.zip())
    found = {row["id"]: row["state"] for row in tables_of(await export(api, user))["memories"]}
    assert found == {str(present): "archived", new: "active"}


async def test_a_paused_app_is_never_resumed(services: Services, api: httpx.AsyncClient, user: str) -> None:
    claude = await services.directory.caller(user, "claude")
    archive = Upstream()
    archive.app("claude", description="An assistant")
    archive.app("cursor", is_active=False)
    await api.put(f"/api/v1/apps/{claude.app_id}", params={"user_id": user, "is_active": False})
    await bring_in(api, user, archive.zip())
    found = {app["name"]: app for app in tables_of(await export(api, user))["apps"]}
    assert (found["claude"]["is_active"], found["claude"]["description"]) == (False, "An assistant")
    assert found["cursor"]["is_active"] is False


async def test_what_is_refused_is_left_out_and_told_without_its_text(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    archive = Upstream()
    archive.memory("fine")
    secret = archive.memory("my AWS key is AKIA" + "IOSFODNN7EXAMPL3")
    long = archive.memory("x" * 16_001)
    blank = archive.memory(" ")
    nul = archive.memory("a\x00b")
    half = archive.memory("half \ud800")
    archive.change(secret, "deleted", "active")
    lost = archive.change("00000000-0000-4000-8000-000000000000", "active", "archived")
    rule = archive.rule(archive.app_id, "deny", "00000000-0000-4000-8000-000000000000")
    strange = archive.rule("00000000-0000-4000-8000-000000000000", "deny")
    nowhere = "00000000-0000-4000-8000-000000000000"
    follows = archive.memory("superseded", superseded_by=nowhere)
    filed = archive.memory("filed", category_ids=[nowhere])
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["memories"]["left_out"]) == (4, 4)
    told = {item["id"]: (item["kind"], item["reason"]) for item in report["left_out"]}
    assert told.keys() == {secret, long, blank, nul, lost, rule, strange, follows, filed}
    assert told[follows] == ("memory", "superseded_by: names a memory that is not there")
    assert told[filed] == ("memory", "category_ids: names a category that is not there")
    assert told[long] == ("memory", "text: has 16,001 characters; the limit is 16,000 (limits.text)")
    assert told[secret][1].startswith("text: looks like it holds")
    assert told[lost] == ("history", "its memory is not in the archive")
    assert told[rule] == ("rule", "is about a memory that is not in the archive")
    assert told[strange] == ("rule", "speaks to an app that is not in the archive")
    assert "AKIA" not in str(report)
    found = (await api.get(f"/api/v1/memories/{half}", params={"user_id": user})).json()
    assert found["text"] == "half \ufffd"


async def test_what_is_there_may_be_superseded_by_what_comes_in(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    before = Upstream()
    old = before.memory("lives in Lisbon")
    await bring_in(api, user, before.zip())
    archive = Upstream()
    new = archive.memory("lives in Porto")
    archive.memory("lives in Lisbon", id=old, state="archived", superseded_by=new)
    report = await bring_in(api, user, archive.zip(), params={"mode": "overwrite"})
    assert (report["memories"]["added"], report["memories"]["replaced"]) == (1, 1)
    owner = await services.directory.existing(user)
    assert (await services.memories.get(owner, UUID(old))).superseded_by == UUID(new)


@pytest.mark.usefixtures("in_bulk")
async def test_two_imports_at_once_and_writes_beside_them_wait_for_each_other(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    caller = await services.directory.caller(user, None, owner=True)
    archive = Upstream()
    for number in range(300):
        archive.memory(f"memory number {number}")
    data = archive.zip()

    async def write() -> None:
        for number in range(300, 0, -20):
            news = [MemoryCreate(text=f"memory number {each}") for each in range(number, max(0, number - 20), -1)]
            await services.memories.add_many(caller, news)

    async with asyncio.timeout(60):
        one, two, _ = await asyncio.gather(send(api, user, data), send(api, user, data), write())
    assert (one.status_code, two.status_code) == (200, 200), (one.text, two.text)
    reports = [one.json()["report"]["memories"], two.json()["report"]["memories"]]
    assert sorted(report["added"] for report in reports) == [0, 300]
    rows = tables_of(await export(api, user))["memories"]
    active = [row["content"] for row in rows if row["state"] == "active"]
    assert len(active) == len(set(active)) == 301


@pytest.mark.slow
@pytest.mark.usefixtures("in_bulk")
async def test_more_than_is_held_at_a_time_goes_through(
    services: Services, api: httpx.AsyncClient, user: str, all_of: AllOf
) -> None:
    archive = Upstream()
    for number in range(2_345):
        archive.memory(f"memory number {number} " + "of many " * 30, metadata={"n": number})
    await bring_in(api, user, archive.zip())
    tables = tables_of(await export(api, user))
    assert [row["metadata"]["n"] for row in sorted(tables["memories"], key=lambda row: row["metadata"]["n"])] == [
        *range(2_345)
    ]
    audit = (await api.get("/api/v1/audit", params={"user_id": user, "event": "memory.export"})).json()["events"]
    assert [event["count"] for event in audit] == [2_345]


@pytest.mark.parametrize("mode", ["overwrite", "skip"])
async def test_the_logs_tell_of_both(services: Services, api: httpx.AsyncClient, user: str, mode: str) -> None:
    archive = Upstream()
    memory = archive.memory("something")
    await bring_in(api, user, archive.zip(), params={"mode": mode})
    await export(api, user)
    audit = (await api.get("/api/v1/audit", params={"user_id": user})).json()["events"]
    told = {event["event"]: event for event in audit}
    assert (told["memory.import"]["objects"], told["memory.import"]["detail"]["mode"]) == ([memory], mode)
    assert (told["memory.export"]["objects"], told["memory.export"]["count"]) == ([memory], 1)
    log = (await api.get(f"/api/v1/memories/{memory}/access-log", params={"user_id": user})).json()
    assert [entry["access_type"] for entry in log["logs"]] == ["export"]


async def test_the_access_log_that_was_brought_over_outlives_the_job_that_ends_old_lines(
    api: httpx.AsyncClient, services: Services, user: str
) -> None:
    """An old installation may be older than its log is kept here: what came in is kept as long from that day on."""
    archive = Upstream()
    memory = archive.memory("read long ago")
    log = {
        "id": new_id(), "memory_id": memory, "app_id": archive.app_id, "accessed_at": "2024-01-01T00:00:00+00:00",
        "access_type": "search", "metadata": {},
    }  # fmt: skip
    whole = members(archive.zip()) | {"access_logs.jsonl.gz": compressed([log])}
    assert (await bring_in(api, user, zipped(whole)))["access_logs"] == 1

    async def left() -> list[str]:
        await services.audit.prune()
        found = (await api.get(f"/api/v1/memories/{memory}/access-log", params={"user_id": user})).json()
        return [line["id"] for line in found["logs"]]

    assert await left() == [log["id"]]
    async with services.database.transaction() as tx:
        aged = "UPDATE memory_access_logs SET imported_at = now() - interval '366 days' WHERE id = CAST(:id AS uuid)"
        await tx.execute(text(aged), {"id": log["id"]})
    assert await left() == []


async def test_an_archive_that_is_brought_in_again_changes_nothing(api: httpx.AsyncClient, user: str) -> None:
    """Of two active twins one is put away: when that was does not move with every import."""
    archive = Upstream()
    first, second = archive.memory("the same"), archive.memory("the same")
    await bring_in(api, user, archive.zip())
    before = {row["id"]: row for row in tables_of(await export(api, user))["memories"]}
    report = await bring_in(api, user, archive.zip())
    after = {row["id"]: row for row in tables_of(await export(api, user))["memories"]}
    assert after == before
    assert (report["memories"]["replaced"], report["memories"]["unchanged"]) == (0, 2)
    assert {before[first]["state"], before[second]["state"]} == {"active", "archived"}


async def test_when_a_user_came_survives_a_round_trip(
    services: Services, api: httpx.AsyncClient, user: str, new_user: str
) -> None:
    archive = Upstream()
    archive.memory("something")
    await bring_in(api, user, archive.zip())
    assert tables_of(await export(api, user))["user"]["created_at"] == "2025-05-01T10:00:00+00:00"
    archive.tables["user"]["created_at"] = "2025-06-01T10:00:00+00:00"
    await bring_in(api, user, archive.zip())
    assert tables_of(await export(api, user))["user"]["created_at"] == "2025-05-01T10:00:00+00:00"


async def test_a_rule_for_no_app_that_did_nothing_there_hides_nothing_here(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    """OpenMemory looked for rules with the id of the app: one without was never applied."""
    archive = Upstream()
    archive.memory("still read")
    rule = archive.rule(None, "deny")
    report = await bring_in(api, user, archive.zip())
    assert report["rules"] == 0
    assert [(each["kind"], each["id"]) for each in report["left_out"]] == [("rule", rule)]
    caller = await services.directory.caller(user, "claude")
    found = await services.memories.list(caller, MemoryQuery())
    assert [memory.content for memory in found.items] == ["still read"]


async def test_an_archive_of_ours_is_taken_again_whatever_its_revisions(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    memory = archive.memory("first", revision=1_000_000)
    await bring_in(api, user, archive.zip())
    answer = await api.put(f"/api/v1/memories/{memory}", json={"user_id": user, "memory_content": "second"})
    assert answer.status_code == 200, answer.text
    again = await export(api, user)
    assert tables_of(again)["memories"][0]["revision"] == 1_000_001
    await bring_in(api, user, again)


async def test_a_revision_after_the_last_number_is_refused_in_words(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    memory = archive.memory("first", revision=2**31 - 1)
    await bring_in(api, user, archive.zip())
    answer = await api.put(f"/api/v1/memories/{memory}", json={"user_id": user, "memory_content": "second"})
    assert answer.status_code == 409, answer.text
    archive.tables["memories"][0]["content"] = "third"
    answer = await send(api, user, archive.zip())
    assert answer.status_code == 409, answer.text


async def test_a_derived_id_that_stands_in_the_archive_too_is_no_conflict(
    services: Services, api: httpx.AsyncClient, user: str
) -> None:
    other = f"other-{new_id()}"
    await services.directory.caller(other, None, owner=True)
    first = Upstream()
    memory = first.memory("of another user")
    await bring_in(api, other, first.zip())
    report = await bring_in(api, user, first.zip())
    assert report["memories"]["renamed"] == 1
    [mine] = tables_of(await export(api, user))["memories"]
    # What both exports hold, in one archive.
    both = Upstream()
    both.memory("of another user", id=memory)
    both.memory("mine, since changed", id=mine["id"])
    answer = await send(api, user, both.zip())
    assert answer.status_code == 200, answer.text
    before = tables_of(await export(api, user))["memories"]
    assert {row["content"] for row in before} == {"of another user", "mine, since changed"}
    again = await bring_in(api, user, both.zip())
    assert again["memories"]["unchanged"] == 2
    assert tables_of(await export(api, user))["memories"] == before


LONG = "The quarterly report lists revenue, costs and staff of every office in Europe. " * 30


async def two(services: Services, user: str) -> tuple[Caller, str]:
    """A user, and the name of another one."""
    await services.directory.caller(f"{user}-other", None, owner=True)
    return await services.directory.caller(user, None, owner=True), f"{user}-other"


async def stored(services: Services, user: str) -> dict[str, tuple[int, str, bytes]]:
    """The vectors of a user's memories by the end of the text: how many, its chunking, and the vectors."""
    query = text(
        "SELECT right(m.content, 3) AS said, length(e.vector) / 1536 AS count, e.chunking, e.vector"
        " FROM embeddings AS e JOIN memories AS m ON m.id = e.id"
        " JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user"
    )
    async with services.database.statement() as tx:
        return {row.said: (row.count, row.chunking, row.vector) for row in await tx.execute(query, {"user": user})}


async def long_and_short(services: Services, user: str) -> str:
    """A user with two memories, a long one that ends with "one" and "short two"; returns another, who has none."""
    owner, other = await two(services, user)
    await services.memories.add_many(owner, [MemoryCreate(text=f"{LONG} one"), MemoryCreate(text="short two")])
    await services.outbox_delivery.drain()
    return other


async def test_a_long_text_takes_all_of_its_vectors_with_it(
    services: Services, api: httpx.AsyncClient, new_user: str
) -> None:
    other = await long_and_short(services, new_user)
    before = await stored(services, new_user)
    assert (before["one"][0] > 5, before["two"][0]) == (True, 1)
    await bring_in(api, other, await export(api, new_user))
    assert await stored(services, other) == before
    await services.outbox_delivery.drain()
    assert await stored(services, other) == before


async def test_tokens_of_what_an_archive_brought_are_made_later(
    services: Services, api: httpx.AsyncClient, new_user: str
) -> None:
    query = text(
        "SELECT right(m.content, 3), md5(t.tokens) FROM embedding_tokens AS t JOIN memories AS m ON m.id = t.id"
        " AND m.hash = t.text_hash JOIN users AS u ON u.id = m.user_id WHERE u.user_id = :user ORDER BY 1"
    )

    async def told(user: str) -> list[tuple[str, str]]:
        async with services.database.statement() as tx:
            return [tuple(row) for row in await tx.execute(query, {"user": user})]

    other = await long_and_short(services, new_user)
    assert [said for said, _ in await told(new_user)] == ["one", "two"]
    await bring_in(api, other, await export(api, new_user))
    await services.outbox_delivery.drain()
    assert await told(other) == []
    # As a new process does: this one has looked already, or does so within the hour.
    again = VectorBackfill(services.database, services.spaces, services.outbox_delivery, INDEXED_TABLES)
    await again.run()
    assert [said for said, _ in await told(other)] == ["one", "two"]


async def test_vectors_of_other_chunks_come_in_as_what_they_are_and_are_completed_later(
    services: Services, api: httpx.AsyncClient, new_user: str
) -> None:
    other = await long_and_short(services, new_user)
    chunked = await stored(services, new_user)
    whole_texts = "whole texts of 384"

    def of_whole_texts(line: bytes) -> bytes:
        record = json.loads(line)
        record["chunking"] = whole_texts
        record["vector"] = base64.b64encode(base64.b64decode(record["vector"])[:1536]).decode()
        return json.dumps(record).encode()

    archive = rewritten(await export(api, new_user), of_whole_texts)
    await bring_in(api, other, archive)
    came = await stored(services, other)
    assert {said: row[:2] for said, row in came.items()} == {"one": (1, whole_texts), "two": (1, whole_texts)}
    await services.outbox_delivery.drain()
    assert await stored(services, other) == came
    assert await services.vector_backfill.run() >= 1
    now = await stored(services, other)
    assert [now[said][:2] for said in ("one", "two")] == [chunked[said][:2] for said in ("one", "two")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"chunking": "128/64/238/32 tokens of 768"},
        {"chunking": ""},
        {"chunking": "tokens of 384", "vector": base64.b64encode(np.full(768, 0.01, "<f4").tobytes()).decode()},
        {"chunking": "tokens of 384", "vector": base64.b64encode(np.eye(33, 384, dtype="<f4").tobytes()).decode()},
        {"chunking": "tokens of 384", "vector": base64.b64encode(np.full(768, np.inf, "<f4").tobytes()).decode()},
    ],
)
async def test_vectors_that_cannot_be_ours_are_left_out_and_made_anew(
    services: Services, api: httpx.AsyncClient, new_user: str, change: dict[str, str]
) -> None:
    owner, other = await two(services, new_user)
    await services.memories.add_many(owner, [MemoryCreate(text=f"{LONG} one")])
    await services.outbox_delivery.drain()
    archive = rewritten(await export(api, new_user), lambda line: json.dumps(json.loads(line) | change).encode())
    await services.outbox_delivery.stop()
    try:
        await bring_in(api, other, archive)
        assert await stored(services, other) == {}
    finally:
        services.outbox_delivery.start()


async def test_a_registered_project_stays_and_gets_what_it_lacks(
    services: Services, api: httpx.AsyncClient, new_user: str
) -> None:
    other = f"{new_user}-other"
    for user in (new_user, other):
        await services.directory.caller(user, None, owner=True)
    project = {"namespace": "webshop", "root": "/srv/shop", "branch": "main"}
    for user, fields in ((new_user, project | {"name": "The shop"}), (other, {"namespace": "webshop", "name": "Mine"})):
        assert (await api.post("/api/v1/projects", json=fields | {"user_id": user})).is_success
    await bring_in(api, other, await export(api, new_user))
    [shown] = (await api.get("/api/v1/projects", params={"user_id": other})).json()["projects"]
    assert (shown["name"], shown["root"], shown["branch"]) == ("Mine", "/srv/shop", "main")


async def test_registrations_beside_each_other_come_along_and_those_of_others_come_after(
    services: Services, api: httpx.AsyncClient, new_user: str
) -> None:
    other = f"{new_user}-other"
    for user in (new_user, other):
        owner = await services.directory.caller(user, None, owner=True)
        for app in ("claude", "cursor"):
            await services.directory.caller(user, app)
        for app, hidden in (("claude", "cursor"), ("cursor", "claude")):
            rule = {"effect": "deny", "app": app, "object_type": "app", "object": hidden}
            await services.grants.create(owner, GrantCreate.model_validate(rule))

    async def registered(user: str) -> list[tuple[str, str | None]]:
        found = list[tuple[str, str | None]]()
        for app in (None, "claude", "cursor"):
            params = {"user_id": user} | ({"app": app} if app else {})
            [shop] = (await api.get("/api/v1/projects", params=params)).json()["projects"]
            found.append((shop["name"], shop["root"]))
        return found

    async def register(user: str, app: str, **fields: str) -> None:
        body = {"user_id": user, "app": app, "namespace": "webshop"} | fields
        assert (await api.post("/api/v1/projects", json=body)).is_success

    await register(new_user, "claude", name="Of claude", root="/claude")
    await register(new_user, "cursor", name="Of cursor", root="/cursor")
    first = [("Of claude", "/claude"), ("Of claude", "/claude"), ("Of cursor", "/cursor")]
    assert await registered(new_user) == first
    archive = await export(api, new_user)
    assert len(lines_of(archive, "projects.jsonl.gz")) == 2
    await register(other, "cursor", name="Mine")
    for _ in range(2):
        await bring_in(api, other, archive)
        # That of the same app gets what it lacks, and nothing of the one that is hidden from it.
        assert await registered(other) == [("Mine", "/cursor"), ("Of claude", "/claude"), ("Mine", "/cursor")]
    fresh = f"{new_user}-fresh"
    await services.directory.caller(fresh, None, owner=True)
    await bring_in(api, fresh, archive)
    assert await registered(fresh) == first


def rewritten(archive: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The archive with each line of its vectors changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "vectors.jsonl.gz":
                data = gzip.compress(b"\n".join(change(line) for line in gzip.decompress(data).splitlines()))
            new.writestr(name, data)
    return out.getvalue()


async def test_what_the_service_assigned_is_its_guess_elsewhere_too(
    api: httpx.AsyncClient, services: Services, user: str
) -> None:
    archive = Upstream()
    guess, given = archive.category(f"guess of {user}"), archive.category(f"given of {user}")
    memory = archive.memory("something", categories=[guess, given])
    archive.tables["memory_categories"][0]["automatic"] = True
    await bring_in(api, user, archive.zip())
    query = text(
        """
        SELECT c.name, f.automatic FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
        WHERE f.memory_id = :id ORDER BY 1
        """
    )
    async with services.database.statement() as tx:
        there = [tuple(row) for row in await tx.execute(query, {"id": memory})]
    assert there == [(f"given of {user}", False), (f"guess of {user}", True)]
    out = tables_of(await export(api, user))["memory_categories"]
    assert sorted(row["automatic"] for row in out) == [False, True]
    # What the user says to be so is no guess any more, and stays none.
    del archive.tables["memory_categories"][0]["automatic"]
    await bring_in(api, user, archive.zip())
    archive.tables["memory_categories"][0]["automatic"] = True
    await bring_in(api, user, archive.zip())
    async with services.database.statement() as tx:
        assert [row.automatic for row in await tx.execute(query, {"id": memory})] == [False, False]


async def test_an_archive_of_which_nothing_may_be_left_out_comes_in_whole_or_not_at_all(
    api: httpx.AsyncClient, user: str
) -> None:
    archive = Upstream()
    archive.memory("I row.")
    good = archive.zip()
    key = "AKIA" + "IOSFODNN7EXAMPL3"
    secret = archive.memory(f"my AWS key is {key}")
    strict = {"on_error": "fail"}
    answer = await send(api, user, archive.zip(), params=strict)
    assert (answer.status_code, answer.json()["error"]) == (422, "import_refused")
    assert f"memory {secret}: text: looks like it holds an AWS access key" in answer.json()["detail"]
    assert key not in answer.text
    lines = await send(api, user, archive.zip(), params=strict, headers={"Accept": "application/x-ndjson"})
    assert json.loads(lines.text.splitlines()[-1])["error"] == "import_refused"
    assert (await api.get("/api/v1/memories", params={"user_id": user})).json()["total"] == 0
    assert (await bring_in(api, user, good, params=strict))["memories"]["added"] == 1
    assert [item["id"] for item in (await bring_in(api, user, archive.zip()))["left_out"]] == [secret]
