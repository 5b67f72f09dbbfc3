"""Late interaction: what the tokens of a question say of the best, whose tokens are read, and who has none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import CODE
from openmemory.embeddings.tokens import cosines, rounded
from openmemory.identity.caller import Caller
from openmemory.index.space import Space, Spaces
from openmemory.memories.schemas import MemoryUpdate
from openmemory.search.candidates.rows import candidate_rows
from openmemory.search.ranking import late_interaction
from openmemory.search.ranking.late_interaction import (
    BLOCK,
    CONTEXT,
    MIN_COMPARED,
    TextTokens,
    compared,
    in_context,
    late_scores,
)
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery
from openmemory.search.service import Search
from openmemory.services import Services, open_services
from tests.clusters import furnish
from tests.search.answers.test_explanation import delivered, sound
from tests.search.candidates.test_rows import talk

IDS = [UUID(int=number) for number in range(1, 41)]


def drawn(chance: np.random.Generator, count: int) -> np.ndarray:
    """Random tokens of a text."""
    return chance.integers(0, 256, (count, CODE), dtype=np.uint8)


def spoken(chance: np.random.Generator, count: int) -> np.ndarray:
    """Random tokens of a question."""
    return rounded(chance.standard_normal((count, 8 * CODE)).astype(np.float32))


SIZES = (1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1, 200)


def written_out(question: np.ndarray, parts: list[np.ndarray]) -> tuple[list[float], list[float]]:
    """The formulas of the docstring, token by token."""
    near = [cosines(question, part) for part in parts]
    maxima = np.array([one.max(axis=0) for one in near])
    weights = 1 + maxima.max(axis=0) - 2 * maxima.mean(axis=0)
    plain, distinct = [], []
    for one in near:
        starts = range(0, max(1, len(one) - BLOCK), BLOCK)
        windows = [one[start : start + 2 * BLOCK].max(axis=0) ** 2 for start in starts]
        plain.append(max(float(window.mean()) for window in windows))
        distinct.append(max(float(window @ weights / weights.sum()) for window in windows))
    few = len(parts) < MIN_COMPARED
    return plain, [0.0 if few else one - float(np.median(distinct)) for one in distinct]


@given(
    counts=st.lists(
        st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 1, 200]), min_size=1, max_size=12
    ),
    asked=st.integers(1, 9),
    seed=st.integers(0, 1_000),
)
def test_a_maxsim_is_that_of_the_best_window(counts: list[int], asked: int, seed: int) -> None:
    chance = np.random.default_rng(seed)
    question, parts = spoken(chance, asked), [drawn(chance, count) for count in counts]
    found = compared(question, counts, np.concatenate(parts))
    plain, distinct = written_out(question, parts)
    assert [one.maxsim for one in found] == pytest.approx(plain, abs=1e-5)
    assert [one.distinct for one in found] == pytest.approx(distinct, abs=1e-4)


def test_what_is_said_together_says_more_than_what_is_scattered() -> None:
    chance = np.random.default_rng(4)
    question, rest = spoken(chance, 2), drawn(chance, 6 * BLOCK)
    first, second = np.packbits(question > 0, axis=1)
    together, scattered = rest.copy(), rest.copy()
    together[[5, 9]] = scattered[[5, 5 * BLOCK]] = first, second
    one, other = compared(question, [len(rest)] * 2, np.concatenate([together, scattered]))
    assert one.maxsim > 1.5 * other.maxsim


def test_a_token_that_all_have_says_little_and_one_that_few_have_much() -> None:
    chance = np.random.default_rng(6)
    question, texts = spoken(chance, 2), [drawn(chance, 4) for _ in range(9)]
    common, rare = np.packbits(question > 0, axis=1)
    for one in texts:
        one[0] = common
    texts[2][1] = rare
    said = compared(question, [4] * 9, np.concatenate(texts))
    assert said[2].distinct > 0.8
    assert max(said[at].distinct for at in (0, 1, 3)) < 0.1
    few = compared(question, [4] * 3, np.concatenate(texts[:3]))
    assert [one.distinct for one in few] == [0, 0, 0]
    assert few[2].maxsim == pytest.approx(said[2].maxsim)


async def test_numbers_alone_and_texts_without_tokens_are_not_compared() -> None:
    chance = np.random.default_rng(2)
    asked, own = spoken(chance, 4), drawn(chance, 2).tobytes()
    some = [TextTokens(b""), TextTokens(own)]
    assert await late_scores(0 * asked, some) == [None, None]
    assert await late_scores(None, some) == [None, None]
    assert await late_scores(asked, some[:1]) == [None]
    assert await late_scores(asked, []) == []
    none, compared_one = await late_scores(asked, some)
    assert none is None
    assert compared_one is not None


@pytest.mark.parametrize(("most", "places"), [(12, [0, 2, 3]), (11, [0, 2]), (9, [0, 2]), (1, [0])])
def test_the_first_texts_within_the_bound_are_compared(
    most: int, places: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_interaction, "MAX_TOKENS", most)
    chance = np.random.default_rng(1)
    found = in_context([TextTokens(drawn(chance, count).tobytes()) for count in (5, 0, 4, 3)])
    assert found[0] == places
    assert len(found[2]) == sum(found[1]) <= max(most, 5)


def test_a_short_text_follows_the_end_of_those_before_it() -> None:
    chance = np.random.default_rng(3)
    one, two, short, long, last = (drawn(chance, count).tobytes() for count in (5, 12, 2 * BLOCK - 1, 2 * BLOCK, 3))
    places, counts, tokens = in_context(
        [
            TextTokens(long, [one, two]),
            TextTokens(short, [one, two]),
            TextTokens(b"", [one]),
            TextTokens(last, [long, b""]),
            TextTokens(one),
        ]
    )
    expected = [long, one[(12 - CONTEXT) * CODE :] + two + short, long[-CONTEXT * CODE :] + last, one]
    assert places == [0, 1, 3, 4]
    assert counts == [len(part) // CODE for part in expected]
    assert tokens.tobytes() == b"".join(expected)


@pytest.fixture
async def plainly(services: Services) -> AsyncIterator[Search]:
    """A search without it, over the same index."""
    embedder = CachedEmbedder(LocalEmbedder(tokenwise=False))
    space = Space(embedder, services.index)
    yield Search(services.database, Spaces(space), services.settings, services.rates)
    await space.embedder_breaker.close()
    await embedder.close()


async def tokens_of(services: Services, *ids: UUID) -> dict[UUID, int]:
    async with services.database.statement() as tx:
        rows = await tx.execute(
            text("SELECT id, length(tokens) / 48 AS count FROM embedding_tokens WHERE id = ANY(:ids)"),
            {"ids": list(ids)},
        )
        return {row.id: row.count for row in rows}


FERRIES = (
    "The ferry to the island leaves at nine from the northern pier",
    "The ferry to the island was painted blue last spring",
    "The captain of the ferry to the island is called Tove",
    "A cabin on the island costs more in July",
    "From the northern pier one sees the lighthouse",
)


async def test_what_says_it_gains_and_the_answer_says_how_much(services: Services, owner: Caller, plainly: Search):
    ids = await delivered(services, owner, *FERRIES)
    query = SearchQuery("who steers the island ferry?", explain=True, everything=True)
    answer = await services.search.search(owner, query)
    results = sound(answer)
    assert results[0].id == ids[2]
    candidates = {result.id: result.explanation.tokens for result in results}
    assert sorted(arm.rank for arm in candidates.values()) == list(range(1, len(results) + 1))
    assert candidates[ids[2]].rank == 1
    assert 0 < candidates[ids[2]].score <= 1
    without = {result.id: result for result in sound(await plainly.search(owner, query))}
    assert without.keys() == candidates.keys()
    assert all(result.explanation.tokens.score is None and result.parts.late == 0 for result in without.values())
    assert results[0].parts.late > max(result.parts.late for result in results[1:])


async def test_the_maxsim_of_candidates_without_tokens_is_estimated(services: Services, owner: Caller):
    ids = await delivered(services, owner, *FERRIES)
    async with services.database.transaction() as tx:
        await tx.execute(text("DELETE FROM embedding_tokens WHERE id = ANY(:ids)"), {"ids": ids[2:]})
    query = SearchQuery("who steers the island ferry?", explain=True, everything=True)
    for result in sound(await services.search.search(owner, query)):
        assert (result.explanation.tokens.score is None) == (result.id in ids[2:])
        [value] = [term.value for term in result.explanation.features if term.feature == "tokens"]
        assert 0 < value < 1


async def test_tokens_of_an_older_text_are_not_compared(services: Services, owner: Caller):
    ids = await delivered(services, owner, *FERRIES)
    await services.outbox_delivery.stop()
    try:
        await services.memories.update(owner, ids[1], MemoryUpdate(text="The ferry to the island is blue"))
        async with services.database.statement() as tx:
            read = await candidate_rows(tx, owner, ids, services.embedder.model)
        assert {id_ for id_, one in read.rows.items() if one.tokens} == {*ids} - {ids[1]}
        answer = await services.search.search(owner, SearchQuery("blue island ferry", explain=True))
        candidates = {result.id: result.explanation.tokens.score for result in sound(answer)}
        assert candidates[ids[1]] is None
        assert candidates[ids[0]] is not None
    finally:
        await services.outbox_delivery.drain()
        services.outbox_delivery.start()
    answer = await services.search.search(owner, SearchQuery("blue island ferry", explain=True))
    assert all(result.explanation.tokens.score is not None for result in sound(answer))


async def test_as_of_a_time_a_text_of_then_is_not_compared_with_that_of_today(services: Services, owner: Caller):
    ids = await delivered(services, owner, *FERRIES)
    then = datetime.now(UTC)
    await services.memories.update(owner, ids[1], MemoryUpdate(text="The ferry has a new engine"))
    await services.outbox_delivery.drain()
    answer = await services.search.search(owner, SearchQuery("blue island ferry", as_of=then, explain=True))
    candidates = {result.id: (result.memory, result.explanation.tokens.score) for result in sound(answer)}
    assert candidates[ids[1]] == (FERRIES[1], None)
    assert candidates[ids[0]][1] is not None


async def test_nobodys_tokens_are_read_but_ones_own(services: Services, new_user: str, owner: Caller):
    stranger = await services.directory.caller(f"{new_user}-other", None, owner=True)
    ids = await delivered(services, owner, *FERRIES)
    async with services.database.statement() as tx:
        theirs = await candidate_rows(tx, stranger, ids, services.embedder.model)
        mine = await candidate_rows(tx, owner, ids, services.embedder.model)
    assert theirs.rows == theirs.neighbours == {}
    assert all(mine.rows[id_].tokens for id_ in ids)


async def test_what_only_its_thread_brings_among_the_best_is_compared_too(services: Services, owner: Caller):
    await talk(services, owner, *FERRIES)
    answer = await services.search.search(owner, SearchQuery("Tove", explain=True))
    results = sound(answer)
    assert any(result.explanation.words.rank is None and result.parts.cosine is None for result in results)
    assert all(result.explanation.tokens.score is not None for result in results)


def told(answer: SearchAnswer) -> list[tuple[UUID, float]]:
    return [(result.id, result.score) for result in answer.results]


async def test_a_question_of_numbers_alone_is_answered_as_without(services: Services, owner: Caller, plainly: Search):
    await delivered(services, owner, *(f"invoice {n}00 was paid" for n in range(20, 40)))
    for asked in ("3200", "3,200?", "2100 2200"):
        found = await services.search.search(owner, SearchQuery(asked))
        assert found.search_method is Method.HYBRID
        assert told(found) == told(await plainly.search(owner, SearchQuery(asked)))


@pytest.mark.slow
async def test_what_takes_long_is_compared_in_another_thread_and_as_ever(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    long = " ".join(FERRIES) * 14
    await delivered(services, owner, *(f"{long} number {n}" for n in range(6)), *FERRIES)
    query = SearchQuery("who steers the island ferry?", explain=True)
    answer = await services.search.search(owner, query)
    assert all(result.explanation.tokens.score is not None for result in sound(answer))
    monkeypatch.setattr(late_interaction, "MIN_THREAD_TOKENS", 0)
    assert await services.search.search(owner, query) == answer


@pytest.mark.slow
async def test_switched_off_nothing_is_stored_or_compared(short_folder: Path) -> None:
    settings = Settings.model_validate(
        {"data_dir": str(furnish(short_folder / "not-late")), "port": 0, "search": {"late_interaction": False}}
    )
    async with open_services(settings) as without:
        ann = await without.directory.caller("ann", None, owner=True)
        await delivered(without, ann, *FERRIES)
        answer = await without.search.search(ann, SearchQuery("island ferry", explain=True))
        assert all(result.explanation.tokens.score is None for result in sound(answer))
        async with without.database.statement() as tx:
            assert await tx.scalar(text("SELECT count(*) FROM embedding_tokens")) == 0
        assert await without.vector_backfill.run() == 0
        async with without.database.statement() as tx:
            assert await tx.scalar(text("SELECT count(*) FROM embedding_tokens")) == 0
