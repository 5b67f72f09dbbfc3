"""The neighbours of a memory in its thread, and answers that follow their questions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.state import State
from openmemory.search.candidates.rows import CandidateRows, ThreadNeighbour, candidate_rows
from openmemory.search.ranking import late_interaction
from openmemory.search.ranking.features import BESIDE
from openmemory.search.schemas import SearchQuery, SearchResult
from openmemory.services import Services

A, B, C, D, E = (UUID(int=number) for number in range(1, 6))
START = datetime(2026, 3, 1, tzinfo=UTC)


def test_what_stands_beside_each_is_read_off_the_neighbours_of_all_hits():
    links = [
        ThreadNeighbour(B, A, -1),
        ThreadNeighbour(B, C, 1),
        ThreadNeighbour(B, D, 2),
        ThreadNeighbour(C, D, 1),
        ThreadNeighbour(C, E, 2),
    ]
    found = CandidateRows({}, {}, links).beside()
    assert found == {
        A: {1: B, 2: C}, B: {-1: A, 1: C, 2: D}, C: {-2: A, -1: B, 1: D, 2: E},
        D: {-2: B, -1: C, 1: E}, E: {-2: C, -1: D},
    }  # fmt: skip
    assert CandidateRows({}, {}, []).beside() == {}


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
    query = SearchQuery("green bicycle lamp", limit=3, explain=True)
    results = (await services.search.search(owner, query)).results
    assert [result.id for result in results[:2]] == [asked, said]
    assert results[1].explanation is not None
    beside = {term.feature: term.order for term in results[1].explanation.features if term.feature in BESIDE}
    assert sum(beside.values()) > 0, beside


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
            one.memory: one.explanation.tokens.score or 0.0
            for one in results
            if one.explanation and "thought" in one.memory
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
        near = (await candidate_rows(tx, owner, [ids[3], ids[0]], None)).links
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
        near = (await candidate_rows(tx, app_caller, [ids[1], ids[2]], None)).links
    # The next ones that may be read are its neighbours.
    assert {(link.hit, link.neighbour, link.step) for link in near} == {(ids[2], ids[0], -1), (ids[2], ids[4], 1)}
