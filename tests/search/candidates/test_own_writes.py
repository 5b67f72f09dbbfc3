"""Searches right after a write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

import pytest
from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.index.port import IndexUnavailable
from openmemory.index.sync.delivery import BATCH
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.resilience.circuit_breaker import CircuitOpen
from openmemory.search.candidates.own_writes import MAX_WAITING
from openmemory.search.candidates.query_analysis import analysed
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery
from openmemory.search.service import Search
from openmemory.search.sql.lexical_filter import LexicalFilter
from openmemory.services import Services

Waiting = Callable[..., Search]

LONG = 10.0
"""The longest wait that the setting allows: a search that waits in vain misses the deadline of its test."""


@pytest.fixture
async def waiting(services: Services) -> AsyncIterator[Callable[..., Search]]:
    """Make a search that waits long, while nothing is delivered unless a test does it. What earlier tests left behind
    is delivered: it would take longer than the search waits."""
    await services.outbox_delivery.stop()
    await services.outbox_delivery.drain()

    def make(wait: float = LONG) -> Search:
        search = services.settings.search.model_copy(update={"write_wait": wait})
        settings = services.settings.model_copy(update={"search": search})
        return Search(services.database, services.spaces, settings, services.rates)

    yield make
    services.outbox_delivery.start()


async def write(services: Services, caller: Caller, *texts: str) -> None:
    await services.memories.add_many(caller, [MemoryCreate(text=text) for text in texts])


async def at_once(search: Search, caller: Caller, query: str) -> SearchAnswer:
    """The answer of a search that does not wait."""
    async with asyncio.timeout(LONG / 2):
        return await search.search(caller, SearchQuery(query))


@pytest.mark.parametrize("query", ["what must I not eat?", "allergies"])
async def test_a_search_right_after_a_write_finds_it_by_meaning(
    services: Services, app_caller: Caller, waiting: Waiting, query: str
):
    await write(services, app_caller, "I am allergic to peanuts.")
    searching = waiting().search(app_caller, SearchQuery(query))
    answer, _ = await asyncio.gather(searching, services.outbox_delivery.drain())
    assert answer.search_method is Method.HYBRID
    assert [result.memory for result in answer.results] == ["I am allergic to peanuts."]
    assert answer.results[0].parts.cosine is not None


async def test_a_changed_memory_is_found_by_its_new_words_at_once_and_no_longer_by_its_old_ones(
    services: Services, owner: Caller, waiting: Waiting
):
    await write(services, owner, "The garden needs water.", "A violin stands in the hall.")
    await services.outbox_delivery.drain()
    search = waiting(0.0)
    [changed] = (await search.search(owner, SearchQuery("garden", limit=1))).results
    await services.memories.update(owner, changed.id, MemoryUpdate(text="The balcony needs paint."))

    async def by_words(query: str) -> list[str]:
        answer = await search.search(owner, SearchQuery(query))
        return [result.memory for result in answer.results if result.parts.lexical]

    assert await by_words("balcony") == ["The balcony needs paint."]
    assert await by_words("garden") == []
    await services.outbox_delivery.drain()
    assert await by_words("balcony") == ["The balcony needs paint."]
    assert await by_words("garden") == []


async def test_only_the_users_own_backlog_keeps_the_index_from_answering(
    services: Services, app_caller: Caller, new_user: str, in_bulk: None, waiting: Waiting
):
    await write(services, app_caller, "I am allergic to peanuts.")
    await services.outbox_delivery.drain()
    other = await services.directory.caller(f"{new_user}-other", "claude")
    await write(services, other, *(f"peanut {n}" for n in range(MAX_WAITING + 1)))
    for caller, expected in ((app_caller, ()), (other, None)):
        async with services.database.statement() as tx:
            assert (await analysed(tx, "peanut", LexicalFilter(caller.user_id))).waiting == expected
        answer = await at_once(waiting(0.0), caller, "peanut")
        assert answer.results[0].parts.bm25


async def test_a_search_waits_no_longer_than_the_setting(services: Services, app_caller: Caller, waiting: Waiting):
    await write(services, app_caller, "I am allergic to peanuts.")
    answer = await at_once(waiting(0.1), app_caller, "what must I not eat?")
    assert answer.results == []
    assert answer.note == (
        "Nothing was found for “must eat” in the only memory that you may read; it waits for the vector index, and can"
        " be found by its words only until then"
    )


async def test_a_memory_whose_vector_is_late_is_found_by_its_words_before_what_is_only_near(
    services: Services, app_caller: Caller, waiting: Waiting
):
    """Among few memories some vector is always the nearest, and its cosine says nothing about the one without."""
    await write(services, app_caller, "The staging server is at stage.example.", "Ada drinks green tea.",
                "Our standup is at nine.", "Invoices go to billing@example.com.")  # fmt: skip
    await services.outbox_delivery.drain()
    await write(services, app_caller, "We ship the webshop in May.")
    query = SearchQuery("when do we ship the webshop?", explain=True)
    answer = await waiting(0.1).search(app_caller, query)
    assert answer.search_method is Method.HYBRID
    first = answer.results[0]
    assert (first.memory, first.parts.cosine) == ("We ship the webshop in May.", None)
    assert first.score > 0.4
    assert all(other.score < 0.2 for other in answer.results[1:])
    assert first.explanation is not None
    assert first.explanation.meaning.rank is None
    assert {term.feature for term in first.explanation.features} >= {"base", "words"}


async def test_a_search_does_not_wait_for_what_another_user_wrote(
    services: Services, app_caller: Caller, new_user: str, waiting: Waiting
):
    other = await services.directory.caller(f"{new_user}-other", "claude")
    await write(services, other, "I am allergic to peanuts.")
    assert (await at_once(waiting(), app_caller, "what must I not eat?")).results == []


@pytest.mark.parametrize("change", ["attempts = 1, last_error = 'away'", "written_at = now() - interval '1 minute'"])
async def test_a_search_does_not_wait_for_a_delivery_that_failed_or_takes_long(
    services: Services, app_caller: Caller, waiting: Waiting, change: str
):
    await write(services, app_caller, "I am allergic to peanuts.")
    async with services.database.transaction() as tx:
        await tx.execute(text(f"update index_outbox set {change}"))
    await at_once(waiting(), app_caller, "what must I not eat?")


async def test_a_search_does_not_wait_behind_a_long_backlog(
    services: Services, app_caller: Caller, in_bulk: None, waiting: Waiting
):
    await write(services, app_caller, *(f"line {n}" for n in range(BATCH + 1)))
    await at_once(waiting(), app_caller, "what must I not eat?")


async def test_a_search_does_not_wait_during_an_outage(services: Services, app_caller: Caller, waiting: Waiting):
    await write(services, app_caller, "I am allergic to peanuts.")
    search = waiting()
    breaker = services.spaces.serving.index_breaker
    for _ in range(100):
        with suppress(IndexUnavailable, CircuitOpen):
            async with breaker.guard():
                raise IndexUnavailable("away")
    assert not services.spaces.serving.answers
    try:
        await at_once(search, app_caller, "what must I not eat?")
    finally:
        await breaker.ask_again()
