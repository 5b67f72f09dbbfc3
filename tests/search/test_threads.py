"""What threads tell of their memories: the sum as a pure function, and answers that stand beside what asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from openmemory.access.grants import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.models import State
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.fusion import FLAGGED_SHARE, Fused
from openmemory.search.lexical import LexicalHit, Thread
from openmemory.search.schemas import SearchQuery, SearchResult
from openmemory.search.threads import NEIGHBOUR_WEIGHT, THREAD_WEIGHT, ThreadNeighbour, links, with_threads
from openmemory.services import Services

A, B, C, D, E = (UUID(int=number) for number in range(1, 6))
TALK, OTHER = Thread("default", "talk"), Thread("default", "other")
START = datetime(2026, 3, 1, tzinfo=UTC)


def fused(id_: UUID, score: float) -> Fused:
    return Fused(id_, score, score, 0.0, None, None)


def test_the_sum_is_the_formula_of_the_docstring():
    ranked = [fused(A, 0.3), fused(B, 0.2), fused(E, 0.1)]
    near = [
        ThreadNeighbour(A, TALK, False, B, 1),
        ThreadNeighbour(A, TALK, False, C, 2),
        ThreadNeighbour(B, TALK, False, A, 1),
        ThreadNeighbour(E, OTHER, False, None, 0),
    ]
    words = [LexicalHit(A, 3.0, thread=TALK, together=4.0), LexicalHit(E, 1.0, thread=OTHER, together=1.0)]
    found = {hit.id: hit for hit in with_threads(ranked, near, words)}
    assert found[A].score == pytest.approx(0.3 + NEIGHBOUR_WEIGHT[0] * 0.2 + THREAD_WEIGHT)
    assert found[B].score == pytest.approx(0.2 + NEIGHBOUR_WEIGHT[0] * 0.3 + THREAD_WEIGHT)
    assert found[C].score == pytest.approx(NEIGHBOUR_WEIGHT[1] * 0.3 + THREAD_WEIGHT)
    assert found[E].score == pytest.approx(0.1 + THREAD_WEIGHT / 4)
    assert (found[C].lexical, found[C].dense, found[C].bm25, found[C].cosine) == (0, 0, None, None)
    for hit in found.values():
        assert hit.score == pytest.approx(hit.lexical + hit.dense + hit.beside + hit.thread - hit.penalty)


def test_scores_stay_within_one_and_their_parts_with_them():
    ranked = [fused(A, 1.0), fused(B, 0.9)]
    near = [ThreadNeighbour(A, TALK, False, B, 1), ThreadNeighbour(B, TALK, False, A, 1)]
    found = with_threads(ranked, near, [LexicalHit(A, 3.0, thread=TALK, together=4.0)])
    assert found[0].score == pytest.approx(1)
    whole = 1.0 + NEIGHBOUR_WEIGHT[0] * 0.9 + THREAD_WEIGHT
    assert (found[0].lexical, found[0].beside, found[0].thread) == pytest.approx(
        (1 / whole, NEIGHBOUR_WEIGHT[0] * 0.9 / whole, THREAD_WEIGHT / whole)
    )


def test_what_gives_orders_lends_its_neighbours_only_what_it_keeps():
    [lender, neighbour] = with_threads([fused(A, 0.8)], [ThreadNeighbour(A, TALK, True, B, 1)], [])
    assert lender.score == 0.8
    assert neighbour.score == pytest.approx(NEIGHBOUR_WEIGHT[0] * FLAGGED_SHARE * 0.8)


def test_without_threads_nothing_changes():
    ranked = [fused(A, 0.8), fused(B, 0.3)]
    assert with_threads(ranked, [], [LexicalHit(A, 1.0)]) == ranked


async def talk(services: Services, owner: Caller, *texts: str, thread: str = "talk", **fields: str) -> list[UUID]:
    """A thread of these texts, a minute apart, in the index."""
    news = [
        MemoryCreate(text=said, thread_id=thread, created_at=START + timedelta(minutes=n), **fields)  # type: ignore[arg-type]
        for n, said in enumerate(texts)
    ]
    added = await services.memories.add_many(owner, news)
    await services.outbox_delivery.drain()
    return [one.id for one in added]


async def found(services: Services, caller: Caller, text: str, limit: int = 3) -> list[SearchResult]:
    return (await services.search.search(caller, SearchQuery(text, limit=limit))).results


async def test_an_answer_is_found_beside_its_question(services: Services, owner: Caller):
    asked, said, *_ = await talk(
        services, owner, "Where did you buy the green bicycle lamp?", "Downstairs, from the old man.", "Nice weather."
    )
    await talk(services, owner, *(f"Downstairs it is number {n} today." for n in range(40)), thread="noise")
    results = await found(services, owner, "green bicycle lamp")
    assert [result.id for result in results[:2]] == [asked, said]
    assert results[1].parts.beside > 0


async def test_neighbours_are_the_next_two_on_either_side_in_the_same_thread_and_namespace(
    services: Services, owner: Caller
):
    ids = await talk(services, owner, *(f"line {n}" for n in range(7)))
    await talk(services, owner, "line of elsewhere", namespace="elsewhere")
    async with services.database.statement() as tx:
        near = await links(tx, owner, [ids[3], ids[0]])
    assert {(link.hit, link.neighbour, link.step) for link in near} == {
        (ids[3], ids[1], 2), (ids[3], ids[2], 1), (ids[3], ids[4], 1), (ids[3], ids[5], 2),
        (ids[0], ids[1], 1), (ids[0], ids[2], 2),
    }  # fmt: skip


async def test_neither_what_is_denied_nor_what_is_put_away_lends_or_gains(
    services: Services, owner: Caller, app_caller: Caller
):
    ids = await talk(services, owner, *(f"line {n}" for n in range(5)))
    rule = GrantCreate(app=app_caller.app, effect="deny", object_type="memory", object=str(ids[1]))
    await services.grants.create(owner, rule)
    await services.memories.change_state(owner, [ids[3]], State.ARCHIVED)
    async with services.database.statement() as tx:
        near = await links(tx, app_caller, [ids[1], ids[2]])
    # The next ones that may be read are its neighbours.
    assert {(link.hit, link.neighbour, link.step) for link in near} == {(ids[2], ids[0], 1), (ids[2], ids[4], 1)}


async def test_the_thread_that_holds_all_the_words_goes_before_one_that_repeats_some(services: Services, owner: Caller):
    await talk(services, owner, "The harbour is far.", "A lantern hung there.", "We met the pilot.", thread="all")
    await talk(services, owner, *(f"The harbour again, part {n}." for n in range(3)), thread="one")
    results = await found(services, owner, "harbour lantern pilot", limit=6)
    assert {result.thread_id for result in results[:3]} == {"all"}
    assert results[0].parts.thread > results[-1].parts.thread > 0
    for result in results:
        parts = result.parts
        total = parts.lexical + parts.dense + parts.beside + parts.thread + parts.late - parts.penalty
        assert result.parts.ranking == pytest.approx(total)
