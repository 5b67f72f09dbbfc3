"""The number of a session and the path of a file mean one thing in a project, whichever app writes it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from openmemory.access.grants import GrantCreate
from openmemory.errors import ConflictError, Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services
from openmemory.sources.schemas import FileEvent, FileSeen, NewFile, NewMessage, NewMessages, NewSession

SHOP = ("shop",)
Deny = Callable[[str, str], Awaitable[None]]


@pytest.fixture
async def claude(services: Services, new_user: str) -> Caller:
    return await services.directory.caller(new_user, "claude")


@pytest.fixture
async def cursor(services: Services, new_user: str) -> Caller:
    return await services.directory.caller(new_user, "cursor")


@pytest.fixture
def deny(services: Services, new_user: str) -> Deny:
    """Hides from one app what another one wrote."""

    async def rule(app: str, written_by: str) -> None:
        owner = await services.directory.caller(new_user, None, owner=True)
        rule = {"effect": "deny", "app": app, "object_type": "app", "object": written_by}
        await services.grants.create(owner, GrantCreate.model_validate(rule))

    return rule


def session(title: str, content: str = "", number: int = 1) -> NewSession:
    return NewSession(number, title, f"About {title}.", content, "shop")


async def titles(services: Services, caller: Caller) -> list[tuple[int, str, str]]:
    page = await services.sessions.list(caller, namespaces=SHOP)
    return [(one.number, one.title, one.app_name) for one in page.items]


async def paths(services: Services, caller: Caller) -> list[tuple[str, str]]:
    return [(one.path, one.app_name) for one in (await services.files.list(caller, namespaces=SHOP)).items]


async def test_a_session_of_the_same_number_is_replaced_and_becomes_that_of_the_app_that_wrote_it(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    kept, lost = "## Why\n\nRestarts take three seconds.", "## Then\n\nThe lift carries nine people."
    first = await services.sessions.save(claude, session("Retries", f"{kept}\n\n{lost}"))
    same = await services.sessions.save(cursor, session("Retries", f"{kept}\n\n{lost}"))
    assert (same.id, same.event, same.replaces) == (first.id, FileEvent.NONE, None)
    assert await titles(services, claude) == [(1, "Retries", "claude")]
    done = await services.sessions.save(cursor, session("Timeouts", kept))
    assert (done.id, done.event, done.replaces) == (first.id, FileEvent.UPDATE, "claude")
    for caller in (claude, cursor):
        assert await titles(services, caller) == [(1, "Timeouts", "cursor")]
        read = await services.sessions.read(caller, 1, namespaces=SHOP)
        assert (read.session.title, read.content) == ("Timeouts", kept)
        await services.outbox_delivery.drain()
        query = SearchQuery("how long is a restart, and what carries the lift?", namespaces=SHOP)
        found = (await services.search.passages(caller, query)).results
        assert {one.app_name for one in found} == {"cursor"}
        assert not any("lift" in one.content for one in found)


async def test_a_session_that_a_rule_hides_is_not_replaced_and_not_revealed(
    services: Services, claude: Caller, cursor: Caller, deny: Deny
) -> None:
    await services.sessions.save(claude, session("Secret"))
    await deny("cursor", "claude")
    taken = await services.sessions.save(cursor, session("Ours"))
    free = await services.sessions.save(cursor, session("Ours", number=2))
    assert (taken.event, taken.replaces) == (free.event, free.replaces) == (FileEvent.ADD, None)
    assert await titles(services, cursor) == [(2, "Ours", "cursor"), (1, "Ours", "cursor")]
    assert (await services.sessions.read(cursor, 1, namespaces=SHOP)).session.title == "Ours"
    # Each reads its own first. Who reads both and has none gets the one that was saved last.
    assert (await services.sessions.read(claude, 1, namespaces=SHOP)).session.title == "Secret"
    owner = await services.directory.caller(claude.user, None, owner=True)
    assert (await services.sessions.read(owner, 1, namespaces=SHOP)).session.title == "Ours"
    # Claude goes on with its own, and cursor's stays.
    done = await services.sessions.save(claude, session("Secret too"))
    assert (done.event, done.replaces) == (FileEvent.UPDATE, None)
    assert (await services.sessions.read(cursor, 1, namespaces=SHOP)).session.title == "Ours"


async def test_an_app_that_may_not_read_itself_replaces_nothing(
    services: Services, claude: Caller, cursor: Caller, deny: Deny
) -> None:
    await services.sessions.save(claude, session("Retries"))
    await deny("cursor", "cursor")
    for number in (1, 2):
        with pytest.raises(Forbidden):
            await services.sessions.save(cursor, session("Timeouts", number=number))
    assert await titles(services, claude) == [(1, "Retries", "claude")]


async def test_a_deleted_conversation_with_messages_is_never_erased_for_a_session(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    await services.conversations.add(cursor, NewMessages("session-1", [NewMessage("I like tea.")], "shop"))
    await services.conversations.delete(cursor, "session-1", namespaces=SHOP)
    await services.sessions.save(claude, session("Retries"))
    with pytest.raises(ConflictError, match="is a conversation with messages"):
        await services.sessions.save(cursor, session("Timeouts"))
    assert await titles(services, claude) == [(1, "Retries", "claude")]
    owner = await services.directory.caller(claude.user, None, owner=True)
    await services.conversations.restore(owner, "session-1", namespaces=SHOP)


async def test_who_may_only_write_learns_nothing_of_what_others_saved(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    first = await services.sessions.save(claude, session("Retries"))
    await services.files.store(claude, "shop", [NewFile("a.md", "# Tea")])
    writer = replace(cursor, principal=replace(cursor.principal, scopes=frozenset({Scope.WRITE})))
    done = await services.sessions.save(writer, session("Retries"))
    assert (done.id != first.id, done.event, done.replaces) == (True, FileEvent.ADD, None)
    [stored] = await services.files.store(writer, "shop", [NewFile("a.md", "# Tea")])
    assert stored.event is FileEvent.ADD
    assert sorted(await titles(services, claude)) == [(1, "Retries", "claude"), (1, "Retries", "cursor")]


async def test_a_deleted_session_of_the_app_makes_room_for_the_one_that_counts(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    await services.sessions.save(cursor, session("Old"))
    await services.conversations.delete(cursor, "session-1", namespaces=SHOP)
    first = await services.sessions.save(claude, session("Retries"))
    done = await services.sessions.save(cursor, session("Timeouts"))
    assert (done.id, done.replaces) == (first.id, "claude")
    assert await titles(services, claude) == [(1, "Timeouts", "cursor")]
    with pytest.raises(NotFound):
        await services.conversations.restore(
            await services.directory.caller(claude.user, None, owner=True), "session-1", namespaces=SHOP
        )


async def test_a_thread_with_messages_is_not_replaced_and_not_in_the_way_of_another_app(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    await services.conversations.add(claude, NewMessages("session-1", [NewMessage("Hello.")], "shop"))
    with pytest.raises(ConflictError):
        await services.sessions.save(claude, session("Retries"))
    assert (await services.sessions.save(cursor, session("Retries"))).event is FileEvent.ADD
    assert (await services.conversations.messages(claude, "session-1", namespaces=SHOP)).total == 2


async def test_sessions_that_two_apps_saved_before_are_kept_and_each_reads_its_own(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    await services.sessions.save(claude, session("Retries"))
    await services.sessions.save(cursor, session("Timeouts", number=2))
    async with services.database.transaction() as tx:  # as it was when numbers were those of an app
        again = text("UPDATE sources SET locator = 'session-1' WHERE app_id = :app")
        await tx.execute(again, {"app": cursor.app_id})
    for caller, title in ((claude, "Retries"), (cursor, "Timeouts")):
        assert (await services.sessions.read(caller, 1, namespaces=SHOP)).session.title == title
        done = await services.sessions.save(caller, session(f"{title} again"))
        assert (done.event, done.replaces) == (FileEvent.UPDATE, None)
    assert len(await titles(services, claude)) == 2


async def test_of_a_number_the_session_of_the_project_comes_before_that_of_the_person(
    services: Services, claude: Caller
) -> None:
    await services.sessions.save(claude, session("Retries"))
    await services.sessions.save(claude, NewSession(1, "Tea", "Green.", "", "default"))
    for namespaces, title in ((("shop", "default"), "Retries"), (("default", "shop"), "Tea"), ((), "Tea")):
        assert (await services.sessions.read(claude, 1, namespaces=namespaces)).session.title == title


async def stored(services: Services, caller: Caller, path: str, said: str) -> Any:
    [done] = await services.files.store(caller, "shop", [NewFile(path, said)])
    return done


async def test_a_file_of_the_same_path_is_replaced_and_keeps_what_is_unchanged(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    guide = "# Shop\n\nSells things.\n\n## Pay\n\nOnly with cards.\n"
    await stored(services, claude, "README.md", guide)
    assert (await stored(services, cursor, "README.md", guide)).event is FileEvent.NONE
    assert await paths(services, cursor) == [("README.md", "claude")]
    done = await stored(services, cursor, "README.md", guide + "\n## Ship\n\nBy bicycle.\n")
    assert (done.event, done.changed) == (FileEvent.UPDATE, 1)
    assert await paths(services, claude) == [("README.md", "cursor")]
    await services.outbox_delivery.drain()
    found = (await services.search.passages(claude, SearchQuery("cards or bicycle?", namespaces=SHOP))).results
    assert {one.app_name for one in found} == {"cursor"}
    assert len(found) == len({one.id for one in found})


async def test_a_plan_counts_the_files_of_other_apps_and_removes_none_of_them(
    services: Services, claude: Caller, cursor: Caller
) -> None:
    await stored(services, claude, "a.py", "a = 1\n")
    await stored(services, claude, "b.py", "b = 1\n")
    await stored(services, cursor, "c.py", "c = 1\n")
    hashes = dict.fromkeys("abc", "")
    for name in hashes:
        async with services.database.statement() as tx:
            query = text("SELECT hash FROM sources WHERE user_id = :user AND locator = :path")
            hashes[name] = await tx.scalar(query, {"user": claude.user_id, "path": f"{name}.py"})
    plan = await services.files.plan(cursor, "shop", [FileSeen("a.py", hashes["a"])])
    assert (plan.unchanged, plan.wanted, plan.gone) == (1, [], ["c.py"])
    done = await services.files.finish(cursor, "shop", gone=["a.py", "b.py", "c.py"])
    assert done.removed == 1
    assert await paths(services, cursor) == [("a.py", "claude"), ("b.py", "claude")]


async def test_a_file_that_a_rule_hides_is_not_replaced_and_not_revealed(
    services: Services, claude: Caller, cursor: Caller, deny: Deny
) -> None:
    await stored(services, claude, "a.py", "secret = 1\n")
    await deny("cursor", "claude")
    plans = [await services.files.plan(cursor, "shop", [FileSeen(path, "h")]) for path in ("a.py", "b.py")]
    assert [(one.wanted, one.unchanged, one.gone) for one in plans] == [(["a.py"], 0, []), (["b.py"], 0, [])]
    taken, free = [await stored(services, cursor, path, "secret = 1\n") for path in ("a.py", "b.py")]
    assert (taken.event, taken.changed) == (free.event, free.changed)
    assert await paths(services, cursor) == [("a.py", "cursor"), ("b.py", "cursor")]
    assert ("a.py", "claude") in await paths(services, claude)


async def test_a_merge_makes_no_second_session_of_a_number(services: Services, claude: Caller, cursor: Caller) -> None:
    await services.sessions.save(claude, session("Retries"))
    await services.sessions.save(cursor, NewSession(1, "Timeouts", "", "", "old"))
    owner = await services.directory.caller(claude.user, None, owner=True)
    with pytest.raises(ConflictError, match="conversation 'session-1'"):
        await services.projects.move(owner, "old", "shop", merge=True)
    await services.conversations.delete(owner, "session-1", namespaces=("old",))
    await services.projects.move(owner, "old", "shop", merge=True)
    assert await titles(services, cursor) == [(1, "Retries", "claude")]
