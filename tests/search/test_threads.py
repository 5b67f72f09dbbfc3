"""What threads tell of their memories: the sum as a pure function, and answers that stand beside what asks for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from openmemory.access.grants import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.models import State
from openmemory.memories.schemas import MemoryCreate
from openmemory.search import late_interaction
from openmemory.search.fusion import FLAGGED_SHARE, Fused
from openmemory.search.schemas import SearchQuery, SearchResult
from openmemory.search.threads import NEIGHBOUR_WEIGHT, ThreadNeighbour, beside, preceding, with_threads
from openmemory.services import Services

A, B, C, D, E = (UUID(int=number) for number in range(1, 6))
START = datetime(2026, 3, 1, tzinfo=UTC)


def fused(id_: UUID, score: float) -> Fused:
    return Fused(id_, score, score, 0.0, None, None)


def test_the_sum_is_the_formula_of_the_docstring():
    ranked = [fused(A, 0.3), fused(B, 0.2), fused(E, 0.1)]
    near = [
        ThreadNeighbour(A, False, B, 1),
        ThreadNeighbour(A, False, C, 2),
        ThreadNeighbour(B, False, A, -1),
    ]
    found = {hit.id: hit for hit in with_threads(ranked, near)}
    assert found[A].score == pytest.approx(0.3 + NEIGHBOUR_WEIGHT[0] * 0.2)
    assert found[B].score == pytest.approx(0.2 + NEIGHBOUR_WEIGHT[0] * 0.3)
    assert found[C].score == pytest.approx(NEIGHBOUR_WEIGHT[1] * 0.3)
    assert found[E].score == pytest.approx(0.1)
    assert (found[C].lexical, found[C].dense, found[C].bm25, found[C].cosine) == (0, 0, None, None)
    for hit in found.values():
        assert hit.score == pytest.approx(hit.lexical + hit.dense + hit.beside - hit.penalty)


def test_scores_stay_within_one_and_their_parts_with_them():
    ranked = [fused(A, 1.0), fused(B, 0.9)]
    near = [ThreadNeighbour(A, False, B, 1), ThreadNeighbour(B, False, A, -1)]
    found = with_threads(ranked, near)
    assert found[0].score == pytest.approx(1)
    whole = 1.0 + NEIGHBOUR_WEIGHT[0] * 0.9
    assert (found[0].lexical, found[0].beside) == pytest.approx((1 / whole, NEIGHBOUR_WEIGHT[0] * 0.9 / whole))


def test_what_gives_orders_lends_its_neighbours_only_what_it_keeps():
    [lender, neighbour] = with_threads([fused(A, 0.8)], [ThreadNeighbour(A, True, B, 1)])
    assert lender.score == 0.8
    assert neighbour.score == pytest.approx(NEIGHBOUR_WEIGHT[0] * FLAGGED_SHARE * 0.8)


def test_without_threads_nothing_changes():
    ranked = [fused(A, 0.8), fused(B, 0.3)]
    assert with_threads(ranked, []) == ranked


def test_what_precedes_each_is_read_off_the_neighbours_of_all_hits():
    links = [
        ThreadNeighbour(B, False, A, -1),
        ThreadNeighbour(B, False, C, 1),
        ThreadNeighbour(B, False, D, 2),
        ThreadNeighbour(C, False, D, 1),
        ThreadNeighbour(C, False, E, 2),
    ]
    assert preceding(links) == {B: [A], C: [A, B], D: [B, C], E: [C, D]}
    assert preceding([]) == {}


def test_what_gives_orders_precedes_nothing():
    links = [
        ThreadNeighbour(B, True, A, -1, True),
        ThreadNeighbour(B, True, C, 1),
        ThreadNeighbour(D, False, E, 1, True),
    ]
    assert preceding(links) == {E: [D]}


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


async def test_a_short_answer_is_read_after_its_question(
    services: Services, owner: Caller, app_caller: Caller, monkeypatch: pytest.MonkeyPatch
):
    """Of answers in nearly the same words, the one that followed the question has the best MaxSim, if its reader may
    read that."""
    asked, said = await talk(services, owner, "How was the concert in Lisbon?", "A bit better than I thought.")
    others = {
        "the bakery": "Better than I thought.",
        "the new bus": "It was better than I thought.",
        "my dentist": "Far better than I thought.",
    }
    for what, answer in others.items():
        await talk(services, owner, f"How was {what}?", answer, thread=what)
    query = SearchQuery("Was the concert in Lisbon better than you thought?", explain=True)

    async def best_of_the_answers(caller: Caller) -> bool:
        results = (await services.search.search(caller, query)).results
        scores = {
            one.memory: one.explanation.late.score
            for one in results
            if one.explanation and one.explanation.late and "thought" in one.memory
        }
        assert len(scores) == 1 + len(others)
        return max(scores, key=lambda memory: scores[memory]) == "A bit better than I thought."

    assert await best_of_the_answers(owner)
    assert await best_of_the_answers(app_caller)
    with monkeypatch.context() as patched:
        patched.setattr(late_interaction, "CONTEXT", 0)
        assert not await best_of_the_answers(owner)
    rule = GrantCreate(app=app_caller.app, effect="deny", object_type="memory", object=str(asked))
    await services.grants.create(owner, rule)
    assert not await best_of_the_answers(app_caller)
    assert said in {one.id for one in (await services.search.search(app_caller, query)).results}


async def test_neighbours_are_the_next_two_on_either_side_in_the_same_thread_and_namespace(
    services: Services, owner: Caller
):
    ids = await talk(services, owner, *(f"line {n}" for n in range(7)))
    await talk(services, owner, "line of elsewhere", namespace="elsewhere")
    async with services.database.statement() as tx:
        near = (await beside(tx, owner, [fused(ids[3], 1.0), fused(ids[0], 0.5)], "", None)).links
    assert {(link.hit, link.neighbour, link.step) for link in near} == {
        (ids[3], ids[1], -2), (ids[3], ids[2], -1), (ids[3], ids[4], 1), (ids[3], ids[5], 2),
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
        near = (await beside(tx, app_caller, [fused(ids[1], 1.0), fused(ids[2], 0.5)], "", None)).links
    # The next ones that may be read are its neighbours.
    assert {(link.hit, link.neighbour, link.step) for link in near} == {(ids[2], ids[0], -1), (ids[2], ids[4], 1)}
