"""Searches under rules against an exhaustive search among what may be read, and what becomes of changed rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from sqlalchemy import select, text

from openmemory.access.readable import readable_by
from openmemory.access.schemas import GrantCreate
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.chance import USUAL
from openmemory.identity.caller import Caller
from openmemory.index.bm25 import K1, MEAN_LENGTH, B
from openmemory.index.port import Hit
from openmemory.index.space import Space, Spaces
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.candidates.commonness import smoothed_idf
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.candidates.query_analysis import COMMON_SHARE, MIN_MEMORIES, RATE, SAMPLE
from openmemory.search.candidates.retrieval import CANDIDATES
from openmemory.search.candidates.rows import candidate_rows
from openmemory.search.context import FLOORS
from openmemory.search.ranking.features import QuestionParts
from openmemory.search.ranking.late_interaction import TextTokens, late_scores
from openmemory.search.ranking.linear_model import candidates, ranked
from openmemory.search.schemas import SearchQuery
from openmemory.search.service import Search
from openmemory.services import Services
from tests.search.test_service import AwayEmbedder

WORDS = (
    "amber", "bicycle", "cellar", "dentist", "engine", "fountain",
    "garden", "hammer", "island", "jacket", "kettle", "lantern",
)  # fmt: skip
APPS = tuple(f"app-{number}" for number in range(4))
NAMESPACES = tuple(f"space-{number}" for number in range(30))
CATEGORIES = tuple(f"subject {number}" for number in range(5))
START = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = 10


@dataclass(frozen=True)
class World:
    owner: Caller
    ids: tuple[UUID, ...]
    vectors: dict[UUID, np.ndarray]
    words: dict[UUID, Counter[str]]
    """How often each memory holds each lexeme, newest memory first."""


async def remember(services: Services, owner: Caller, size: int = 240) -> World:
    """Memories of few words in many places."""
    chance = random.Random(7)
    news = [
        MemoryCreate(
            text=" ".join(chance.choices(WORDS, weights=range(1, 13), k=chance.randint(3, 12))) + f" number {number}",
            app=chance.choice(APPS),
            namespace=chance.choice(NAMESPACES),
            categories=tuple(chance.sample(CATEGORIES, chance.choice([0, 0, 1, 2]))),
            created_at=START + timedelta(minutes=number),
        )
        for number in range(size)
    ]
    added = await services.memories.add_many(owner, news)
    await services.outbox_delivery.drain()
    async with services.database.statement() as tx:
        kept = await tx.execute(
            text(
                "SELECT m.id, e.vector, m.words::text FROM memories m JOIN embeddings e ON e.id = m.id"
                " WHERE m.user_id = :user AND e.model = :model ORDER BY m.created_at DESC"
            ),
            {"user": owner.user_id, "model": services.embedder.model},
        )
        rows = kept.all()
    assert len(rows) == size
    words = {row.id: _lexemes(row.words) for row in rows}
    vectors = {row.id: np.frombuffer(row.vector, dtype="<f4") for row in rows}
    return World(owner, tuple(one.id for one in added), vectors, words)


def _lexemes(words: str) -> Counter[str]:
    """The lexemes of a tsvector, and how often it holds each: `'amber':1,4 'garden':2`."""
    found = Counter[str]()
    for part in words.split(" "):
        lexeme, _, places = part.rpartition(":")
        found[lexeme.strip("'")] = places.count(",") + 1
    return found


async def exhaustive(
    services: Services, world: World, caller: Caller, query: str, *, dense: bool = True
) -> list[tuple[UUID, float]] | None:
    """The best that the caller may read by id and score: every memory is scored, none chosen beforehand.

    None if some of those that are just as good by words are candidates and others are not: either may be.
    """
    async with services.database.statement() as tx:
        found = await tx.scalars(select(Memory.id).where(readable_by(caller, Memory)), caller.parameters)
        readable = set(found)
        stems = text("SELECT w, (tsvector_to_array(to_tsvector('english', w)))[1] FROM unnest(:words ::text[]) AS w")
        rows = await tx.execute(stems, {"words": query.split()})
        lexeme_of: dict[str, str] = dict(rows.all())  # type: ignore[arg-type]
    held = [counts for id_, counts in world.words.items() if id_ in readable]
    asked = await services.embedder.query(_meant(held, lexeme_of))
    near = sorted((Hit(id_, float(world.vectors[id_] @ asked.vector)) for id_ in readable), key=lambda hit: -hit.score)
    said = _bm25(
        {id_: counts for id_, counts in world.words.items() if id_ in readable},
        [lexeme_of[word] for word in query.split()],
    )
    if len(said) > CANDIDATES and said[CANDIDATES - 1].score - said[CANDIDATES].score < 1e-5:
        return None
    chance = await services.spaces.serving.chance(asked.vector) if dense else USUAL
    floor = FLOORS[services.embedder.model]
    found = candidates(near[:CANDIDATES] if dense else [], said[:CANDIDATES], floor=floor, chance=chance)
    if not found:
        return []
    ids = [one.id for one in found]
    whole = (await services.embedder.query(query)).tokens if dense else None
    async with services.database.statement() as tx:
        read = await candidate_rows(tx, caller, ids, services.embedder.model if dense else None)
    assert whole is None or all(one.tokens for one in read.rows.values())
    late = await late_scores(whole, [TextTokens(read.rows[id_].tokens) for id_ in ids])
    for one, score in zip(found, late, strict=True):
        one.row, one.late = read.rows[one.id], score
    return [(hit.id, hit.order) for hit in ranked(found, QuestionParts(query, chance=chance))[:LIMIT]]


def _meant(readable: list[Counter[str]], lexeme_of: dict[str, str]) -> str:
    """The words of a query, by their lexemes, without those that many of the newest hold."""
    newest = readable[:SAMPLE]
    held = {word: sum(lexeme in counts for counts in newest) for word, lexeme in lexeme_of.items()}
    common = min(COMMON_SHARE, 1 - (1 - RATE) ** np.mean([len(counts) for counts in newest])) if newest else 1
    rare = [word for word, number in held.items() if number <= common * len(newest)]
    return " ".join(rare if 2 * len(rare) >= len(held) > 1 and len(newest) >= MIN_MEMORIES else held)


def _bm25(documents: dict[UUID, Counter[str]], lexemes: list[str]) -> list[LexicalHit]:
    """Every document that holds one of the lexemes, with its score."""
    if not documents:
        return []
    scores: Counter[UUID] = Counter()
    total = (K1 + 1) * sum(
        smoothed_idf(len(documents), sum(lexeme in counts for counts in documents.values()), lexeme)
        for lexeme in set(lexemes)
    )
    for lexeme in set(lexemes):
        holding = {id_: counts[lexeme] for id_, counts in documents.items() if counts[lexeme]}
        idf = smoothed_idf(len(documents), len(holding), lexeme)
        for id_, tf in holding.items():
            k = K1 * (1 - B + B * len(documents[id_]) / MEAN_LENGTH)
            scores[id_] += idf * tf * (K1 + 1) / (tf + k)
    hits = (LexicalHit(id_, score, coverage=min(score / total, 1.0)) for id_, score in scores.items())
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


async def make_rules(services: Services, world: World, chance: random.Random, size: int) -> None:
    """Random rules in place of those that were."""
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM access_controls WHERE user_id = :user"), {"user": world.owner.user_id})
    choices: dict[str, Any] = {"memory": list(map(str, world.ids)), "app": APPS, "namespace": NAMESPACES}
    choices |= {"category": CATEGORIES, "all": (None,)}
    for _ in range(size):
        kind = chance.choices(list(choices), weights=(8, 2, 6, 2, 0.5))[0]
        effect = chance.choices(["deny", "allow"], weights=(3, 1))[0]
        subject = chance.choices([APPS[0], APPS[1], None], weights=(4, 1, 1))[0]
        new = {"app": subject, "effect": effect, "object_type": kind, "object": chance.choice(choices[kind])}
        await services.grants.create(world.owner, GrantCreate.model_validate(new))
    # A last one over the service, as everywhere but above, so that who remembers rules learns of it.
    new = {"app": APPS[3], "effect": "deny", "object_type": "namespace", "object": f"none-{chance.random()}"}
    await services.grants.create(world.owner, GrantCreate.model_validate(new))


def agree(found: list[tuple[UUID, float]], expected: list[tuple[UUID, float]] | None) -> bool:
    """The same scores in the same order, of the same memories but for those that share the last score. False: nothing
    is expected."""
    if expected is None:
        return False
    assert [score for _, score in found] == pytest.approx([score for _, score in expected], abs=1e-4)
    if expected:
        last = expected[-1][1] + 2e-4
        assert {id_ for id_, score in expected if score > last} <= {id_ for id_, _ in found}
    return bool(expected)


@pytest.mark.slow
@pytest.mark.parametrize("default", ["user", "own_app"])
async def test_a_search_under_rules_finds_the_very_best_that_may_be_read(
    services: Services, owner: Caller, default: str
):
    world = await remember(services, owner)
    chance = random.Random(11)
    search, without_vectors = services.search, _without_vectors(services)
    answers = 0
    for size in (0, 1, 2, 3, 4, 6, 10, 20, 40, 80, 120):
        await make_rules(services, world, chance, size)
        for app in APPS[:2]:
            caller = replace(await services.directory.caller(owner.user, app), default=default)
            query = " ".join(chance.sample(WORDS, chance.randint(2, 4)))
            answer = await search.search(caller, SearchQuery(query, limit=LIMIT, everything=True))
            agree(
                [(it.id, it.parts.ranking) for it in answer.results], await exhaustive(services, world, caller, query)
            )
            answer = await without_vectors.search(caller, SearchQuery(query, limit=LIMIT, everything=True))
            expected = await exhaustive(services, world, caller, query, dense=False)
            answers += agree([(it.id, it.parts.ranking) for it in answer.results][: len(expected or ())], expected)
    assert answers > 8


def _without_vectors(services: Services) -> Search:
    return Search(
        services.database,
        Spaces(Space(CachedEmbedder(AwayEmbedder()), services.index)),
        services.settings,
        services.rates,
    )


@pytest.mark.slow
async def test_though_the_best_are_each_denied_the_best_of_the_others_are_found(services: Services, owner: Caller):
    world = await remember(services, owner)
    caller = await services.directory.caller(owner.user, "cursor")
    query = "dentist garden lantern"
    for _ in range(4):
        best = await services.search.search(caller, SearchQuery(query, limit=40, everything=True))
        for result in best.results:
            new = {"app": "cursor", "effect": "deny", "object_type": "memory", "object": str(result.id)}
            await services.grants.create(owner, GrantCreate.model_validate(new))
        answer = await services.search.search(caller, SearchQuery(query, limit=LIMIT, everything=True))
        assert len(answer.results) == LIMIT
        agree([(it.id, it.parts.ranking) for it in answer.results], await exhaustive(services, world, caller, query))


async def test_a_rule_holds_for_the_very_next_search(services: Services, owner: Caller, app_caller: Caller):
    [secret] = [(await services.memories.add(owner, MemoryCreate(text="tea in the cellar"))).id]
    await services.outbox_delivery.drain()

    async def found() -> list[UUID]:
        return [it.id for it in (await services.search.search(app_caller, SearchQuery("tea cellar"))).results]

    assert await found() == [secret]
    new = {"app": "claude", "effect": "deny", "object_type": "namespace", "object": "default"}
    rule = await services.grants.create(owner, GrantCreate.model_validate(new))
    assert await found() == []
    await services.grants.revoke(owner, rule.id)
    assert await found() == [secret]


@pytest.mark.slow
@pytest.mark.parametrize("query", ["stones", "Caroline collects stones"])
async def test_what_is_remembered_of_rules_tells_nothing_once_they_are_others(
    services: Services, owner: Caller, app_caller: Caller, query: str
):
    talks = [MemoryCreate(text=f"Caroline said tea, number {n}", namespace="talks") for n in range(40)]
    await services.memories.add_many(owner, talks)
    await services.memories.add_many(owner, [MemoryCreate(text=f"stones, number {n}") for n in range(40)])
    await services.memories.add(owner, MemoryCreate(text="Caroline collects stones and wool"))
    await services.outbox_delivery.drain()

    async def found(search: Search) -> object:
        answer = await search.search(app_caller, SearchQuery(query, limit=5, explain=True))
        return answer.explanation, [(it.id, it.score, it.parts) for it in answer.results]

    before = await found(services.search)
    new = {"app": "claude", "effect": "deny", "object_type": "namespace", "object": "talks"}
    rule = await services.grants.create(owner, GrantCreate.model_validate(new))
    after = await found(services.search)
    knows_nothing = Search(services.database, services.spaces, services.settings, services.rates)
    assert after == await found(knows_nothing) != before
    await services.grants.revoke(owner, rule.id)
    assert await found(services.search) == await found(knows_nothing) == before


async def test_erasing_all_that_an_app_was_allowed_ends_its_list(services: Services, owner: Caller, app_caller: Caller):
    listed, other = [
        (await services.memories.add(owner, MemoryCreate(text=words))).id for words in ("tea", "tea and milk")
    ]
    await services.outbox_delivery.drain()
    new = {"app": "claude", "effect": "allow", "object_type": "memory", "object": str(listed)}
    await services.grants.create(owner, GrantCreate.model_validate(new))
    answer = await services.search.search(app_caller, SearchQuery("tea"))
    assert [it.id for it in answer.results] == [listed]
    await services.memories.erase(owner, [listed])
    answer = await services.search.search(app_caller, SearchQuery("tea"))
    assert [it.id for it in answer.results] == [other]


async def test_a_memory_filed_anew_is_found_under_rules_about_categories(
    services: Services, owner: Caller, app_caller: Caller
):
    [memory] = [(await services.memories.add(owner, MemoryCreate(text="my dog is called Biscuit"))).id]
    new = {"app": "claude", "effect": "allow", "object_type": "category", "object": f"pets of {owner.user}"}
    await services.grants.create(owner, GrantCreate.model_validate(new))

    async def found() -> list[UUID]:
        await services.outbox_delivery.drain()
        # Shares no word with it: only its vector can be found.
        return [it.id for it in (await services.search.search(app_caller, SearchQuery("animals at home"))).results]

    assert await found() == []
    await services.memories.update(owner, memory, MemoryUpdate(categories=(f"pets of {owner.user}",)))
    assert await found() == [memory]
    await services.memories.update(owner, memory, MemoryUpdate(categories=()))
    assert await found() == []


async def test_a_score_by_words_tells_nothing_of_what_may_not_be_read(
    services: Services, owner: Caller, app_caller: Caller
):
    await services.memories.add(app_caller, MemoryCreate(text="an appointment with the oncologist"))
    new = {"app": "claude", "effect": "deny", "object_type": "namespace", "object": "private"}
    await services.grants.create(owner, GrantCreate.model_validate(new))

    async def score() -> float | None:
        answer = await services.search.search(app_caller, SearchQuery("oncologist"))
        return answer.results[0].parts.bm25

    before = await score()
    await services.memories.add_many(
        owner, [MemoryCreate(text=f"oncologist, visit {number}", namespace="private") for number in range(20)]
    )
    assert await score() == pytest.approx(before, rel=1e-6)


async def test_rules_about_names_of_any_characters_mean_those_names(
    services: Services, owner: Caller, app_caller: Caller
):
    names = ["a'b", 'x"y', "back\\slash", "{brace,}", "über", "NULL", "%s", "$1", ":in_user", "a", "A"]
    ids = {}
    for name in names:
        ids[name] = (await services.memories.add(owner, MemoryCreate(text=f"tea in {name}", namespace=name))).id
    await services.outbox_delivery.drain()
    left = set(names)
    for name in names:
        new = {"app": "claude", "effect": "deny", "object_type": "namespace", "object": name}
        await services.grants.create(owner, GrantCreate.model_validate(new))
        left.remove(name)
        for search in (services.search, _without_vectors(services)):
            answer = await search.search(app_caller, SearchQuery("tea", limit=20))
            assert {result.namespace for result in answer.results} == left
            assert {result.id for result in answer.results} == {ids[other] for other in left}
