"""Conversations are answered by the indexes that were made for them, among some thousand messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text

from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services, open_services
from openmemory.sources.schemas import NewMessage, NewMessages
from tests.clusters import furnish
from tests.memories.listing.test_plans import assert_no_scan, plans

__all__ = ["plans"]

THREADS, TURNS = 80, 100

_FILL = (
    """
    INSERT INTO sources (user_id, app_id, namespace, kind, locator, length, captured)
    SELECT s.user_id, s.app_id, s.namespace, s.kind, 'thread-' || t, :turns, :turns
    FROM sources AS s, generate_series(1, :threads) AS t WHERE s.user_id = :user AND s.locator = 'first'
    """,
    """
    INSERT INTO passages (source_id, user_id, app_id, namespace, thread_id, kind, position, external_id, content,
        created_at)
    SELECT s.id, s.user_id, s.app_id, s.namespace, s.locator, 'turn', n, 'm-' || n,
        'number ' || n || ' of ' || s.locator || CASE WHEN mod(n, 50) = 0 THEN ' about zebras' ELSE '' END,
        now() - n * interval '1 minute'
    FROM sources AS s, generate_series(1, :turns) AS n WHERE s.user_id = :user AND s.locator <> 'first'
    """,
)


@pytest.fixture(scope="module")
async def many(short_folder: Path) -> AsyncIterator[tuple[Services, Caller, Caller]]:
    """Services of their own, one user with many messages, and one with as many more beside them."""
    settings = Settings.model_validate({"data_dir": str(furnish(short_folder / "plans"))})
    async with open_services(settings) as services:
        await services.outbox_delivery.stop()
        for user in ("one", "other"):
            owner = await services.directory.caller(user, None, owner=True)
            await services.conversations.add(owner, NewMessages("first", [NewMessage("number 0")]))
            async with services.database.transaction() as tx:
                for statement in _FILL:
                    values = {"user": owner.user_id, "threads": THREADS, "turns": TURNS}
                    names = text(statement).compile().params
                    await tx.execute(text(statement), {name: values[name] for name in names})
        async with services.database.statement() as tx:
            await tx.execute(text("VACUUM ANALYZE"))
        one = await services.directory.caller("one", None, owner=True)
        yield services, one, await services.directory.caller("one", "an-app")


@contextmanager
def heard(services: Services) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent meanwhile, with their parameters."""
    said: list[tuple[str, Any]] = []

    def hear(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        said.append((statement, parameters))

    event.listen(services.database.engine.sync_engine, "before_cursor_execute", hear)
    try:
        yield said
    finally:
        event.remove(services.database.engine.sync_engine, "before_cursor_execute", hear)


async def scans(services: Services, said: list[tuple[str, Any]]) -> list[str]:
    """The plans that read a whole table of conversations."""
    found = []
    for statement, parameters in said:
        if not any(table in statement for table in ("sources", "passages")):
            continue
        async with services.database.transaction() as tx:
            rows = await tx.exec_driver_sql(f"EXPLAIN (COSTS OFF) {statement}", parameters)
            plan = "\n".join(row[0] for row in rows)
        # A user with half of all conversations has them counted by a scan.
        if "Seq Scan on passages" in plan or ("Seq Scan on sources" in plan and "count(*)" not in statement):
            found.append(f"{statement}\n{plan}")
    return found


@pytest.mark.slow
async def test_no_use_case_reads_a_whole_table(many: tuple[Services, Caller, Caller]) -> None:
    services, owner, app = many
    conversations = services.conversations
    with heard(services) as said:
        for caller in (owner, app):
            assert (await conversations.threads(caller)).total > THREADS
            assert (await conversations.messages(caller, "thread-7")).total == TURNS
            assert (await conversations.slice(caller, "thread-7", around=40, limit=5)).items
            repeated = [NewMessage("x", id="m-1")]
            await conversations.add(caller, NewMessages("thread-9", [*repeated, NewMessage("new")]))
        await conversations.close(owner, "thread-8")
        await conversations.delete(owner, "thread-8")
        await conversations.restore(owner, "thread-8")
        await conversations.erase(owner, "thread-8")
        await conversations.expire()
        await services.windows._take()
    assert await scans(services, said) == []
    assert len([one for one in said if "passages" in one[0]]) > 10


async def test_a_search_by_words_takes_the_index_of_lexemes(
    many: tuple[Services, Caller, Caller], plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    services, owner, app = many
    await services.search.passages(owner, SearchQuery("anything"))  # connects the index
    monkeypatch.setattr(services.spaces.serving, "behind", "it is empty")
    for caller in (owner, app):
        plans.clear()
        answer = await services.search.passages(caller, SearchQuery("zebras"))
        assert {"zebras" in result.content for result in answer.results[:5]} == {True}
        assert "idx_passage_lexical" in "\n".join(plans)
        # The analysis counts up to 5,000 rows where there are no statistics.
        assert_no_scan([plan for plan in plans if "CTE spoken" not in plan], "passages", "sources")
