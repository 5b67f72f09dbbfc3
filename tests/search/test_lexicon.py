"""The language of words: chosen at a start, made anew page by page, with searches that find everything meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.errors import SetupError
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search import lexicon
from openmemory.search.candidates.lexical import search
from openmemory.search.candidates.retrieval import Lookups, lexical_candidates
from openmemory.search.context import search_context
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services, open_services
from openmemory.sources.schemas import NewMessage, NewMessages
from tests.clusters import furnish

_NUMBERS = count()


@pytest.fixture
async def own(short_folder: Path) -> AsyncIterator[Services]:
    """Services of their own, since the language is one for all users."""
    async with open_services(
        Settings(data_dir=str(furnish(short_folder / f"lexicon{next(_NUMBERS)}")), port=0)
    ) as services:
        await services.outbox_delivery.stop()
        yield services


async def found(services: Services, caller: Caller, query: str) -> set[UUID]:
    async with services.database.statement() as tx:
        return {hit.id for hit in await search(tx, query, LexicalFilter(caller.user_id), 20, enough=0)}


async def state(services: Services) -> tuple[str, list[str], UUID | None]:
    async with services.database.statement() as tx:
        row = (await tx.execute(text("SELECT language, former, done FROM lexicon"))).one()
        return row.language, row.former, row.done


async def add(services: Services, caller: Caller, *texts: str) -> list[UUID]:
    return [one.id for one in await services.memories.add_many(caller, [MemoryCreate(text=one) for one in texts])]


async def test_another_language_finds_all_while_words_are_made_anew(own: Services, monkeypatch: pytest.MonkeyPatch):
    caller = await own.directory.caller("ada", "claude")
    others = await add(own, caller, *(f"Die Katze Nummer {n} schläft" for n in range(20)))
    (house,) = await add(own, caller, "Die Häuser stehen leer, running")
    assert await found(own, caller, "Haus") == set()
    await lexicon.choose(own.database, "german")
    assert await state(own) == ("german", ["english"], None)
    (fresh,) = await add(own, caller, "Viele Häuser brennen")
    assert await found(own, caller, "Haus") == {fresh}
    assert await found(own, caller, "Häuser") == {house, fresh}
    assert house in await found(own, caller, "runs")

    monkeypatch.setattr(lexicon, "PAGE", 7)
    assert await own.lexical_backfill._step() is True
    language, former, done = await state(own)
    assert (language, former) == ("german", ["english"])
    assert done is not None
    assert await found(own, caller, "Katzen") == set(others)
    # As after a restart: it goes on where it was.
    pages = await lexicon.LexicalBackfill(own.database, own.outbox_delivery.wake).run()
    assert pages == 4
    assert await state(own) == ("german", [], None)
    assert await found(own, caller, "Haus") == {house, fresh}
    assert await found(own, caller, "runs") == set()
    assert await found(own, caller, "Katzen") == set(others)
    assert await own.lexical_backfill.run() == 0


async def test_the_index_follows_into_another_language(own: Services):
    caller = await own.directory.caller("ada", None, owner=True)
    ids = await add(own, caller, "Die Häuser stehen leer", "Der Hund schläft")
    await own.outbox_delivery.drain()

    async def said(query: str) -> tuple[list[UUID], bool]:
        """What is found by words, and whether the index alone answers."""
        context = search_context(own.search._resources, caller, SearchQuery(query))
        with closing(Lookups(context)) as lookups:
            hits = await lexical_candidates(context, lookups, 10)
            _, analysis = await lookups.scope
        return [hit.id for hit in hits if not hit.partial], analysis.waiting == ()

    assert await said("Haus") == ([], True)
    await lexicon.choose(own.database, "german")
    await own.lexical_backfill.run()
    assert await said("Haus") == ([ids[0]], False)
    await own.outbox_delivery.drain()
    assert await said("Haus") == ([ids[0]], True)
    assert await said("Hunde") == ([ids[1]], True)


@pytest.mark.slow
async def test_messages_follow_into_another_language(own: Services):
    caller = await own.directory.caller("ada", None, owner=True)
    turns = [NewMessage("Die Häuser stehen leer", "Ada"), NewMessage("Der Hund schläft")]
    await own.conversations.add(caller, NewMessages("t", [*turns]))

    async def said(query: str) -> list[str]:
        found = await own.search.passages(caller, SearchQuery(query))
        return [result.content for result in found.results if result.parts.bm25]

    assert await said("Haus") == []
    await lexicon.choose(own.database, "german")
    await own.lexical_backfill.run()
    assert await state(own) == ("german", [], None)
    assert await said("Haus") == ["Die Häuser stehen leer"]
    await own.outbox_delivery.drain()
    assert await said("Hunde") == ["Der Hund schläft"]
    assert await said("Ada") == ["Die Häuser stehen leer"]


async def test_a_text_that_changes_meanwhile_keeps_its_own_words(own: Services):
    caller = await own.directory.caller("ada", "claude")
    (id_,) = await add(own, caller, "Die Häuser stehen leer")
    await lexicon.choose(own.database, "german")
    async with own.database.transaction() as tx:
        await tx.execute(text("UPDATE memories SET content = 'Die Bäume' WHERE id = :id"), {"id": id_})
    await own.lexical_backfill.run()
    assert await found(own, caller, "Baum") == {id_}
    assert await found(own, caller, "Haus") == set()


async def test_an_empty_memory_has_nothing_to_make_anew(own: Services):
    await lexicon.choose(own.database, "simple")
    assert await state(own) == ("simple", [], None)
    caller = await own.directory.caller("ada", "claude")
    (id_,) = await add(own, caller, "The running")
    assert await found(own, caller, "the") == {id_}
    assert await found(own, caller, "run") == set()


async def test_a_language_that_is_not_there_stops_the_start(own: Services):
    with pytest.raises(SetupError, match=r"search\.language: 'klingon' is no text search configuration .* english, "):
        await lexicon.choose(own.database, "klingon")
    assert (await state(own))[0] == "english"


async def test_every_language_of_postgresql_can_be_chosen(own: Services):
    async with own.database.statement() as tx:
        names = list((await tx.execute(text("SELECT cfgname FROM pg_ts_config"))).scalars())
        assert {"simple", "english", "german", "russian"} <= set(names)
        for name in names:
            words = (
                "SELECT length(lexical_words(CAST(:name AS regconfig), 'getUserById Häuser 東京都 книги 2023-05-08'))"
            )
            assert await tx.scalar(text(words), {"name": name}) > 8
