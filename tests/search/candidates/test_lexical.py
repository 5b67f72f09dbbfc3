"""The lexical arm against a plain model of BM25, on the real PostgreSQL."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.access.rules import ALL
from openmemory.identity.caller import Caller
from openmemory.index.bm25 import K1, MEAN_LENGTH, B
from openmemory.index.port import Filter
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.state import State
from openmemory.search import statistics
from openmemory.search.candidates.commonness import smoothed_idf
from openmemory.search.candidates.lexical import MOST, LexicalHit, LexicalSearch, search
from openmemory.search.candidates.query_analysis import analysed
from openmemory.search.query.filters import parsed
from openmemory.search.query.text import STOP_WORDS
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.compiled_filter import compiled_filter
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services

STEMS = {"apple": "appl", "candle": "candl"}
WORDS = ["apple", "river", "stone", "cloud", "tiger", "violin", "harbor", "candle", "planet", "garden"]


async def remember(services: Services, caller: Caller, *texts: str, **fields: Any) -> list[UUID]:
    return [one.id for one in await services.memories.add_many(caller, [MemoryCreate(text=t, **fields) for t in texts])]


async def look(
    services: Services, caller: Caller, query: str, limit: int = 10, ids: tuple[UUID, ...] | None = None, **filters: Any
) -> list[LexicalHit]:
    query = query.replace("\x00", " ")
    where = compiled_filter(caller, SearchQuery(query, **filters)).within(ALL, ids).lexical
    async with services.database.statement() as connection:
        return await search(connection, query, where, limit)


async def fill(services: Services, caller: Caller, count: int, content: str, namespace: str = "default") -> None:
    """Store `count` memories at once; `content` is SQL over `i`, 1 to `count`. The highest `i` is the newest."""
    async with services.database.transaction() as tx:
        await tx.execute(
            text(f"""
            insert into memories (user_id, app_id, namespace, content, hash, created_at)
            select :user, :app, cast(:namespace as text), {content}, md5(cast(:namespace as text) || i),
                   now() - interval '1 day' + i * interval '1 s'
            from generate_series(1, :count) i
            """),
            {"user": caller.user_id, "app": caller.app_id, "namespace": namespace, "count": count},
        )


def bm25(texts: list[str], query: str) -> list[float]:
    """BM25 of every text, by its definition; all words are their own stems."""
    documents = [text.split() for text in texts]
    scores = []
    terms = query.split()
    df = {term: sum(term in other for other in documents) for term in terms}
    weight = {
        term: (K1 + 1) * smoothed_idf(len(documents), n, term[:5] if term == "candle" else term)
        for term, n in df.items()
    }
    for words in documents:
        score = 0.0
        for term in set(terms):
            tf = words.count(term)
            score += weight[term] * tf / (tf + K1 * (1 - B + B * len(set(words)) / MEAN_LENGTH))
        scores.append(score)
    return scores


async def test_scores_are_bm25_with_the_users_own_statistics(services: Services, app_caller: Caller):
    chance = random.Random(7)
    texts = sorted({" ".join(chance.choices(WORDS, k=chance.randint(2, 30))) for _ in range(60)})
    ids = await remember(services, app_caller, *texts)
    expected = dict(zip(ids, bm25(texts, "violin candle apple"), strict=True))
    hits = await look(services, app_caller, "violin, candle apple?", limit=60)
    assert {hit.id: hit.score for hit in hits} == pytest.approx({i: s for i, s in expected.items() if s > 0}, rel=1e-4)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.slow
async def test_the_index_gives_the_same_scores(services: Services, app_caller: Caller):
    chance = random.Random(8)
    others = [
        "getUserById 2023-05-08",
        "Ёлка у café",
        "東京タワー",
        "v2.3.1 C++",
        "o'hara \\ 'x'",
        "und so weiter " * 9,
    ]
    texts = sorted({" ".join(chance.choices([*WORDS, *others], k=chance.randint(1, 25))) for _ in range(150)})
    await remember(services, app_caller, *texts, "?!", "the of and")
    await services.outbox_delivery.drain()
    where = LexicalFilter(app_caller.user_id)
    for query in [*others, *(" ".join(chance.choices([*WORDS, *others], k=3)) for _ in range(20)), "?"]:
        async with services.database.statement() as tx:
            analysis = await analysed(tx, query, where)
            expected = await LexicalSearch(query, analysis, where, 200, 0).by_words(tx)
        assert analysis.waiting == ()
        said = await services.index.search_words(analysis.vector, Filter(app_caller.user_id), 200)
        assert {hit.id: hit.score for hit in said} == pytest.approx({hit.id: hit.score for hit in expected}, rel=1e-5)
        assert (len(expected) > 20) or query == "?" or query in others


async def test_a_word_said_many_times_counts_as_often_as_it_is_said(services: Services, app_caller: Caller):
    texts = [" ".join(["tiger"] * times + ["stone"]) for times in (1, 2, 3, 5, 8, 13, 40, 200)] + ["river stone"] * 1
    ids = await remember(services, app_caller, *texts)
    hits = await look(services, app_caller, "tiger", limit=20)
    assert {h.id: h.score for h in hits} == pytest.approx(
        {i: s for i, s in zip(ids, bm25(texts, "tiger"), strict=True) if s > 0}, rel=1e-4
    )


async def test_another_users_memories_are_neither_found_nor_counted(
    services: Services, app_caller: Caller, owner: Caller, new_user: str
):
    stranger = await services.directory.caller(new_user + "-else", "claude")
    await remember(services, app_caller, "tiger stone", "river stone")
    alone = await look(services, app_caller, "tiger")
    await remember(services, stranger, *(f"tiger number {i}" for i in range(20)))
    assert await look(services, app_caller, "tiger") == alone
    assert len(alone) == 1


async def test_a_namespace_is_searched_with_its_own_statistics(services: Services, app_caller: Caller):
    await remember(services, app_caller, "tiger stone", "river stone", namespace="work")
    alone = await look(services, app_caller, "tiger", namespaces=("work",))
    await remember(services, app_caller, *(f"tiger number {i}" for i in range(20)), namespace="home")
    assert await look(services, app_caller, "tiger", namespaces=("work",)) == alone
    assert len(alone) == 1
    assert len(await look(services, app_caller, "tiger", 50, namespaces=("work", "home"))) == 21
    assert len(await look(services, app_caller, "tiger", 50)) == 21


async def test_filters_leave_only_what_matches_them(services: Services, app_caller: Caller, new_user: str):
    other = await services.directory.caller(new_user, "cursor")
    now = datetime.now(UTC)
    (plain,) = await remember(services, app_caller, "tiger one", created_at=now - timedelta(days=3))
    (thread,) = await remember(services, app_caller, "tiger two", thread_id="t1", created_at=now - timedelta(days=2))
    (kind,) = await remember(services, app_caller, "tiger three", kind="note", created_at=now - timedelta(days=1))
    (app,) = await remember(services, other, "tiger four", created_at=now)
    everything = {plain, thread, kind, app}

    async def found(**where: Any) -> set[UUID]:
        return {hit.id for hit in await look(services, app_caller, "tiger", **where)}

    assert await found() == everything
    assert await found(threads=("t1",)) == {thread}
    assert await found(kinds=("note",)) == {kind}
    assert await found(app_ids=(other.app_id,)) == {app}
    assert await found(created_from=now - timedelta(days=2)) == {thread, kind, app}
    assert await found(created_to=now - timedelta(days=2)) == {plain, thread}
    assert await found(created_to=now - timedelta(days=2, microseconds=1)) == {plain}
    assert await found(ids=(plain, kind)) == {plain, kind}
    assert await found(ids=(plain, kind), kinds=("note",)) == {kind}
    assert await found(ids=()) == set()


async def test_only_active_and_unexpired_memories_are_found(services: Services, app_caller: Caller):
    kept, paused, deleted, expiring = await remember(services, app_caller, *(f"tiger {word}" for word in WORDS[:4]))
    await services.memories.change_state(app_caller, [paused], State.PAUSED)
    await services.memories.delete(app_caller, [deleted])
    async with services.database.transaction() as tx:
        await tx.execute(
            text("update memories set expires_at = now() - interval '1 s' where id = :id"), {"id": expiring}
        )
    assert [hit.id for hit in await look(services, app_caller, "tiger")] == [kept]
    assert [hit.id for hit in await look(services, app_caller, "tige")] == [kept]


async def test_a_filter_that_passes_over_the_best_still_leaves_as_many_as_asked_for(
    services: Services, app_caller: Caller
):
    await remember(services, app_caller, *(f"tiger tiger tiger {i}" for i in range(30)))
    wanted = await remember(services, app_caller, *(f"tiger seen from afar number {i}" for i in range(5)), kind="far")
    hits = await look(services, app_caller, "tiger", 5, filter=parsed({"kind": {"ne": "memory"}}))
    assert {hit.id for hit in hits} == set(wanted)
    assert await look(services, app_caller, "tiger", kinds=("none",)) == []


@pytest.mark.parametrize(
    ("memory", "query"),
    [
        ("My authentication token expires on Monday", "authent"),
        ("The variable is called foo_bar-12", "foo_bar-12"),
        ("Ключ лежит под ковриком", "коврик"),
        ("東京タワーに行きました", "東京"),
        ("Listening to The Who", "the who"),
        (r"The share is \\server\50%_off", "50%_off"),
        ("Die Krankenversicherung kostet viel", "Welche Versicherung?"),
        ("犬の名前はハチです", "犬"),
    ],
)
async def test_what_stemming_misses_is_found_by_parts_of_words(
    services: Services, app_caller: Caller, memory: str, query: str
):
    (wanted,) = await remember(services, app_caller, memory)
    await remember(services, app_caller, "Nothing of the sort", "Something else altogether")
    assert [hit.id for hit in await look(services, app_caller, query)] == [wanted]


async def test_of_parts_of_words_those_that_hold_more_of_the_query_come_first(services: Services, app_caller: Caller):
    word, both, whole = await remember(
        services, app_caller, "outgardening", "outgardening at harborside", "outgardening harbors"
    )
    hits = await look(services, app_caller, "ardening harbor")
    assert [hit.id for hit in hits] == [whole, both, word]
    assert all(hit.partial for hit in hits[1:])
    assert 0.5 == hits[1].coverage > hits[2].coverage > 0


async def test_whole_words_come_before_parts_of_words(services: Services, app_caller: Caller):
    part, whole = await remember(services, app_caller, "gardening gloves", "a stone in the harbor")
    hits = await look(services, app_caller, "ardenin stone")
    assert [(hit.id, hit.partial) for hit in hits] == [(whole, False), (part, True)]
    assert hits[0].score > hits[1].score > 0


@pytest.mark.parametrize("query", ["", "   ", "?!", "'", "\\", "a'b\\c & | ! <-> (", "\x00tiger", "%", "word " * 900])
async def test_no_query_breaks_the_statement(services: Services, app_caller: Caller, query: str):
    await remember(services, app_caller, "tiger", "it's a 'quoted' \\ thing")
    hits = await look(services, app_caller, query)
    assert all(hit.score > 0 for hit in hits)


async def test_a_long_query_is_scored_by_its_rarest_words(services: Services, app_caller: Caller):
    (wanted,) = await remember(services, app_caller, "the xylophone stands in the attic")
    short = " ".join(f"w{i}" for i in range(60))
    assert [hit.id for hit in await look(services, app_caller, f"xylophone {short}")] == [wanted]


async def test_stop_words_make_no_lexeme(services: Services):
    async with services.database.statement() as tx:
        made = await tx.scalar(text("SELECT to_tsvector('english', :words)::text"), {"words": " ".join(STOP_WORDS)})
    assert made == ""


async def test_every_word_of_a_long_question_counts(services: Services, app_caller: Caller):
    added = await services.memories.add(app_caller, MemoryCreate(text="pineapple"))
    question = "what did you and I say about the apples, pears, plums, grapes, figs, dates, limes and the pineapple"
    async with services.database.statement() as tx:
        found = await search(tx, question, LexicalFilter(app_caller.user_id), 10, enough=1)
    assert [hit.id for hit in found] == [added.id]


async def test_nothing_is_asked_for_nothing_is_found(services: Services, app_caller: Caller):
    await remember(services, app_caller, "tiger")
    assert await look(services, app_caller, "tiger", limit=0) == []


async def test_weights_of_a_large_memory_are_those_of_its_statistics(services: Services, app_caller: Caller):
    """3,000 memories all say `stone`, every third `river`, every 500th `tiger`."""
    content = """'stone' || case when i % 3 = 0 then ' river' else '' end
                         || case when i % 500 = 0 then ' tiger' else '' end || ' n' || i"""
    await fill(services, app_caller, 3_000, content)
    before = {hit.id: hit.score for hit in await look(services, app_caller, "tiger river stone", 6)}
    async with services.database.transaction() as tx:
        assert app_caller.user_id in await statistics.stale_users(tx)
        await statistics.refresh(tx, app_caller.user_id)
    hits = await look(services, app_caller, "tiger river stone", 6)
    assert {hit.id: hit.score for hit in hits} == pytest.approx(before)
    df = {"stone": 3_000, "river": 1_000, "tiger": 6}
    idf = {term: smoothed_idf(3_000, n, term) for term, n in df.items()}
    expected = sum(idf.values()) * (K1 + 1) / (1 + K1 * (1 - B + B * 4 / MEAN_LENGTH))
    assert hits[0].score == pytest.approx(expected, rel=1e-4)


async def test_of_words_in_too_many_memories_the_newest_are_found(services: Services, app_caller: Caller):
    await fill(
        services, app_caller, MOST + 1_000, "'stone' || case when i % 3 = 0 then ' river' else '' end || ' n' || i"
    )
    async with services.database.transaction() as tx:
        await statistics.refresh(tx, app_caller.user_id)
    newest = await look(services, app_caller, "stone", 10)
    assert len(newest) == 10
    async with services.database.statement() as connection:
        oldest = text("select id from memories where user_id = :user order by created_at limit 1")
        first = await connection.scalar(oldest, {"user": app_caller.user_id})
    for query in ("stone", "tone"):  # a word, a part of one
        assert [hit.id for hit in await look(services, app_caller, query, ids=(first,))] == [first]
    async with services.database.statement() as connection:
        numbers = (
            await connection.execute(
                text("select substring(content from 'n(\\d+)')::int from memories where id = any(:ids)"),
                {"ids": [hit.id for hit in newest]},
            )
        ).scalars()
        assert all(number > 1_000 for number in numbers)
