"""Passages in the index: delivered after memories, compared by the sync, and found without the index."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.memories.schemas import MemoryCreate
from openmemory.search import statistics
from openmemory.search.candidates.query_analysis import analysed
from openmemory.search.schemas import Method, SearchQuery
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services
from openmemory.sources.schemas import MessageAdded, NewMessage, NewMessages


@pytest.fixture
async def quiet(services: Services) -> AsyncIterator[Services]:
    """Services that deliver nothing by themselves."""
    await services.outbox_delivery.drain()
    await services.outbox_delivery.stop()
    yield services
    services.outbox_delivery.start()
    services.outbox_delivery.wake()


async def said(services: Services, caller: Caller, *texts: str, thread: str = "chat") -> list[UUID]:
    results = await services.conversations.add(caller, NewMessages(thread, [NewMessage(one) for one in texts]))
    return [one.id for one in results if isinstance(one, MessageAdded)]


async def found(services: Services, caller: Caller, query: str) -> list[str]:
    return [result.content for result in (await services.search.passages(caller, SearchQuery(query))).results]


async def test_a_memory_never_waits_for_messages(quiet: Services, app_caller: Caller) -> None:
    await said(quiet, app_caller, *(f"message {n}" for n in range(40)))
    await quiet.memories.add(app_caller, MemoryCreate(text="Ada drinks tea."))

    async def waiting() -> list[int]:
        """The numbers of memories and messages of this user that wait for the index."""
        counts = "SELECT count(*) FILTER (WHERE kind = 'memory'), count(*) FILTER (WHERE kind = 'passage')"
        async with quiet.database.statement() as tx:
            values = {"user": app_caller.user_id}
            [row] = await tx.execute(text(f"{counts} FROM index_outbox WHERE user_id = :user"), values)
            return list(row)

    left = [await waiting()]
    while any(left[-1]):
        claimed, _ = await quiet.outbox_delivery._deliver()
        assert claimed > 0
        if (now := await waiting()) != left[-1]:  # a round may deliver what another test left
            left.append(now)
    assert left == [[1, 40], [0, 40], [0, 24], [0, 8], [0, 0]]


async def test_entries_of_an_unknown_kind_are_left_to_a_newer_version(quiet: Services, owner: Caller) -> None:
    values = {"user": owner.user_id}
    async with quiet.database.transaction() as tx:
        unknown = (
            "INSERT INTO index_outbox (kind, id, user_id) VALUES ('chapter', gen_random_uuid(), :user) RETURNING id"
        )
        id_ = await tx.scalar(text(unknown), values)
    try:
        await quiet.outbox_delivery.drain()
        async with quiet.database.transaction() as tx:
            left = await tx.scalar(text("SELECT attempts FROM index_outbox WHERE id = :id"), {"id": id_})
        assert left == 0
    finally:
        async with quiet.database.transaction() as tx:
            await tx.execute(text("DELETE FROM index_outbox WHERE id = :id"), {"id": id_})


async def test_what_waits_is_found_by_its_words(quiet: Services, owner: Caller) -> None:
    await said(quiet, owner, "The cat sleeps.", "The dog barks.")
    assert (await found(quiet, owner, "dog"))[0] == "The dog barks."
    await quiet.outbox_delivery.drain()
    assert (await found(quiet, owner, "dog"))[0] == "The dog barks."


async def test_what_waits_ranks_by_its_words_beside_many_that_do_not(quiet: Services, owner: Caller) -> None:
    await said(quiet, owner, *(f"The cat has slept on mat number {n}." for n in range(90)))
    await quiet.outbox_delivery.drain()
    await said(quiet, owner, "The parrot has counted the mats: ninety.")
    answer = await quiet.search.passages(owner, SearchQuery("which animal counted the mats?", limit=40))
    assert "The parrot has counted the mats: ninety." in [result.content for result in answer.results]


@pytest.mark.slow
async def test_the_sync_restores_what_the_index_has_lost(quiet: Services, owner: Caller) -> None:
    ids = await said(quiet, owner, "The cat sleeps.", "The dog barks.")
    memory = (await quiet.memories.add(owner, MemoryCreate(text="Ada has a cat."))).id
    await quiet.outbox_delivery.drain()
    tenant = ItemKind.PASSAGE.tenant(owner.user_id)
    assert (await quiet.index.count(owner.user_id), await quiet.index.count(tenant)) == (1, 2)
    await quiet.index.delete([ids[0], memory])
    mine = await quiet.reconciler.sync(trigger="test", user=owner.user_id)
    # What other users wrote meanwhile is delivered first.
    assert (mine.total_memories, mine.unchanged, mine.errors) == (3, 1, 0)
    assert (await quiet.index.count(owner.user_id), await quiet.index.count(tenant)) == (1, 2)
    await quiet.index.delete(ids)
    await quiet.reconciler.sync(trigger="test")
    assert await quiet.index.count(tenant) == 2
    assert await quiet.reconciler.drift() == 0


async def test_the_sync_removes_what_is_no_longer_said(quiet: Services, owner: Caller) -> None:
    ids = await said(quiet, owner, "The cat sleeps.", "The dog barks.")
    await quiet.outbox_delivery.drain()
    async with quiet.database.transaction() as tx:
        await tx.execute(text("UPDATE passages SET state = 'deleted' WHERE id = :id"), {"id": ids[0]})
        await tx.execute(text("DELETE FROM passages WHERE id = :id"), {"id": ids[1]})
    done = await quiet.reconciler.sync(trigger="test", user=owner.user_id)
    assert done.deleted >= 2
    assert await quiet.index.count(ItemKind.PASSAGE.tenant(owner.user_id)) == 0


async def test_a_user_that_is_erased_leaves_no_message(services: Services, owner: Caller) -> None:
    await said(services, owner, "The cat sleeps.", "The dog barks.")
    await services.outbox_delivery.drain()
    await services.memories.erase_user(owner)
    await services.outbox_delivery.drain()
    assert await services.index.count(ItemKind.PASSAGE.tenant(owner.user_id)) == 0


async def test_messages_expire_and_can_be_restored(services: Services, owner: Caller) -> None:
    await services.conversations.add(owner, NewMessages("chat", [NewMessage("For a while")], ttl_days=1))
    await said(services, owner, "For ever")
    async with services.database.transaction() as tx:
        over = "UPDATE passages SET expires_at = now() WHERE user_id = :user AND expires_at > now()"
        assert (await tx.execute(text(over), {"user": owner.user_id})).rowcount == 1
    page = await services.conversations.messages(owner, "chat")
    assert [message.content for message in page.items] == ["For ever"]
    assert await services.conversations.expire() == 1
    assert await services.conversations.expire() == 0
    assert (await services.conversations.restore(owner, "chat")).messages == 1
    assert (await services.conversations.messages(owner, "chat")).total == 2
    assert await services.conversations.expire() == 0


async def test_words_answer_while_the_index_is_away(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(services, owner, "The cat sleeps.", "The dog barks.", 'She said "good night" at ten.')
    await services.outbox_delivery.drain()
    monkeypatch.setattr(services.spaces.serving, "search", away)
    monkeypatch.setattr(services.spaces.serving, "search_words", away)
    answer = await services.search.passages(owner, SearchQuery("dog"))
    assert (answer.search_method, answer.results[0].content) == (Method.LEXICAL, "The dog barks.")
    assert answer.note == "Using text search (vector store unavailable)"
    assert (await found(services, owner, '"good night"'))[0].startswith("She said")


_FILL = """
INSERT INTO passages (source_id, user_id, app_id, namespace, thread_id, kind, position, content)
SELECT p.source_id, p.user_id, p.app_id, p.namespace, p.thread_id, 'turn', n,
    'tea number ' || n || CASE WHEN mod(n, 4) = 0 THEN ' with milk' ELSE '' END
FROM passages AS p, generate_series(2, :count) AS n WHERE p.id = :id
"""


async def test_words_of_many_messages_are_counted_beforehand(quiet: Services, owner: Caller) -> None:
    [first] = await said(quiet, owner, "tea number 1")
    count = statistics.LARGE + 400
    async with quiet.database.transaction() as tx:
        await tx.execute(text(_FILL), {"id": first, "count": count})
        assert owner.user_id in await statistics.stale_users(tx, ItemKind.PASSAGE)
        assert owner.user_id not in await statistics.stale_users(tx)
        await statistics.refresh(tx, owner.user_id, ItemKind.PASSAGE)
        assert owner.user_id not in await statistics.stale_users(tx, ItemKind.PASSAGE)
        where = LexicalFilter(owner.user_id, kind=ItemKind.PASSAGE)
        found = await analysed(tx, "milk in tea", where)
        assert {lexeme.text: lexeme.document_frequency for lexeme in found.lexemes} == {"milk": count / 4, "tea": count}
    async with quiet.database.transaction() as tx:  # nothing of it is delivered
        await tx.execute(text("DELETE FROM sources WHERE user_id = :user"), {"user": owner.user_id})
        await statistics.refresh(tx, owner.user_id, ItemKind.PASSAGE)


async def away(*_: object, **__: object) -> None:
    from openmemory.index.port import IndexUnavailable

    raise IndexUnavailable("away")
