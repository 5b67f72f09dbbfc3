"""Broad questions, and searches that find nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from openmemory.access.grants import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.overview import REPEATED_GROUP, Telling, most_telling
from openmemory.search.query_text import is_broad
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery
from openmemory.services import Services

NOW = datetime(2026, 5, 1, tzinfo=UTC)

TEXTS = [
    "Alice lives in Oslo with two cats",
    "The production database is backed up every night",
    "Her sister Maria is allergic to peanuts",
    "Deployments happen on Tuesdays",
    "She plays the violin in an amateur orchestra",
]


async def stored(services: Services, caller: Caller, texts: Sequence[str] = TEXTS, **fields) -> list[UUID]:
    """Memories with their vectors."""
    added = await services.memories.add_many(caller, [MemoryCreate(text=text, **fields) for text in texts])
    await services.outbox_delivery.drain()
    return [one.id for one in added]


def telling(
    *lexemes: str, days: int = 0, importance: float | None = None, group: str = "memory", flagged: bool = False
):
    made = NOW - timedelta(days=days)
    return Telling(uuid4(), made, importance, frozenset([group]), frozenset(lexemes), flagged)


def texts(answer: SearchAnswer) -> set[str]:
    return {result.memory for result in answer.results}


@pytest.mark.parametrize(
    "query",
    [
        "what do you know about me?", "who am I?", "Who am I", "everything", "tell me about myself", "*", "?",
        "What have I told you?", "list all memories", "what's in my memory", "do you remember me?", "the of and",
        "show me everything you remember", "What do you know about the user?",
    ],
)  # fmt: skip
def test_a_question_without_a_subject_is_broad(query: str):
    assert is_broad(query)


@pytest.mark.parametrize(
    "query",
    [
        "what do you know about my sister?",
        "who is Maria",
        "everything about Oslo",
        "42",
        "東京",
        "all deployments",
        "C++",
    ],
)
def test_a_question_with_a_subject_is_not_broad(query: str):
    assert not is_broad(query)


def test_important_and_recent_memories_come_first():
    vital = telling("peanut", days=90, importance=1.0)
    trivial = telling("weather", importance=0.1)
    fresh, old = telling("violin"), telling("oslo", days=365)
    hits = most_telling([trivial, old, fresh, vital], 4)
    assert [hit.id for hit in hits] == [fresh.id, vital.id, trivial.id, old.id]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_repetitions_come_after_what_says_something_else():
    said, again, other = (
        telling("green", "tea", "like"),
        telling("green", "tea", "like", "much"),
        telling("oslo", days=60),
    )
    assert [hit.id for hit in most_telling([said, again, other], 3)] == [said.id, other.id, again.id]
    assert 0 < most_telling([said, again, other], 3)[-1].score < 0.1


def test_one_category_does_not_fill_the_list():
    work = [telling(f"work{n}", group="work") for n in range(3)]
    home = telling("home", days=20, group="home")
    hits = most_telling([*work, home], 4)
    assert [hit.id for hit in hits][1] == home.id
    assert hits[2].score == pytest.approx(REPEATED_GROUP * hits[0].score)


def test_flagged_memories_come_last():
    flagged, old = telling("order", importance=1.0, flagged=True), telling("oslo", days=900)
    assert [hit.id for hit in most_telling([flagged, old], 2)] == [old.id, flagged.id]
    assert [hit.id for hit in most_telling([flagged, old], 1)] == [old.id]


@pytest.mark.parametrize("query", ["what do you know about me?", "who am I?", "everything", "*", "is it?"])
async def test_a_broad_question_is_answered_with_an_overview(services: Services, app_caller: Caller, query: str):
    await stored(services, app_caller)
    answer = await services.search.search(app_caller, SearchQuery(query, limit=3))
    assert answer.search_method is Method.OVERVIEW
    assert len(texts(answer) & set(TEXTS)) == 3
    assert answer.note == "The query is broad; there are 5 memories, of which these 3 are the most telling"
    scores = [result.score for result in answer.results]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    whole = await services.search.search(app_caller, SearchQuery(query))
    assert (texts(whole), whole.note) == (
        set(TEXTS),
        "The query is broad; there are 5 memories, the most telling first",
    )


async def test_an_overview_can_be_asked_for_within_filters(services: Services, app_caller: Caller, owner: Caller):
    await stored(services, app_caller)
    await stored(services, app_caller, ["The webshop sells tea"], namespace="webshop", importance=0.9)
    answer = await services.search.overview(app_caller, SearchQuery("", namespaces=("webshop",), explain=True))
    assert (answer.search_method, answer.note) == (Method.OVERVIEW, "There is 1 memory, the most telling first")
    [only] = answer.results
    assert (only.memory, only.namespace) == ("The webshop sells tea", "webshop")
    assert only.explanation.formula == "score = 0.95"
    log = await services.memories.access_log(owner, only.id)
    assert [entry.app_name for entry in log.logs] == [app_caller.app]


async def test_words_that_stand_in_a_memory_are_looked_for(services: Services, app_caller: Caller):
    await stored(services, app_caller)
    [band] = await stored(services, app_caller, ["Listening to The Who"])
    answer = await services.search.search(app_caller, SearchQuery("the who"))
    assert answer.results[0].id == band
    assert (answer.search_method, answer.note) == (Method.HYBRID, None)


async def test_a_search_that_finds_nothing_shows_some_and_says_how_many_there_are(
    services: Services, app_caller: Caller
):
    await stored(services, app_caller, [*TEXTS, "The tax adviser is called Brandt"])
    answer = await services.search.search(app_caller, SearchQuery("quasar redshift spectroscopy"))
    assert (answer.search_method, len(answer.results)) == (Method.OVERVIEW, 5)
    assert answer.note == (
        "Nothing was found for the query; there are 6 memories, of which these 5 are the most telling"
    )


async def test_an_overview_counts_and_shows_only_what_may_be_read(
    services: Services, app_caller: Caller, owner: Caller
):
    await stored(services, owner, TEXTS[:2], namespace="private")
    await stored(services, owner, TEXTS[2:], namespace="shared")
    rule = GrantCreate(app=app_caller.app, effect="deny", object_type="namespace", object="private")
    await services.grants.create(owner, rule)
    answer = await services.search.search(app_caller, SearchQuery("everything"))
    assert texts(answer) == set(TEXTS[2:])
    assert "there are 3 memories" in (answer.note or "")
    narrowed = await services.search.search(app_caller, SearchQuery("everything", namespaces=("private",)))
    assert narrowed.results == []
    assert narrowed.note == "No memory matches the filters of the query; without them, there are 3 memories"


async def test_an_empty_answer_says_that_the_filters_exclude_what_there_is(services: Services, app_caller: Caller):
    await stored(services, app_caller)
    answer = await services.search.search(app_caller, SearchQuery("cats", kinds=("decision",)))
    assert answer.results == []
    assert answer.note == "No memory matches the filters of the query; without them, there are 5 memories"


@pytest.mark.parametrize("query", ["cats", "everything", "last week"])
async def test_an_app_that_is_paused_is_told_so(services: Services, app_caller: Caller, owner: Caller, query: str):
    await stored(services, app_caller)
    await services.apps.set_active(owner, app_caller.app_id, False)
    answer = await services.search.search(app_caller, SearchQuery(query))
    assert answer.results == []
    assert answer.note == "App claude is currently paused on OpenMemory. Cannot read memories."


async def test_an_empty_memory_needs_no_note(services: Services, app_caller: Caller):
    answer = await services.search.overview(app_caller, SearchQuery(""))
    assert (answer.results, answer.note) == ([], None)


async def test_an_overview_of_an_earlier_time_shows_what_there_was(services: Services, owner: Caller):
    await stored(services, owner, TEXTS[:2], created_at=NOW - timedelta(days=100))
    await stored(services, owner, TEXTS[2:], created_at=NOW)
    answer = await services.search.search(owner, SearchQuery("everything", as_of=NOW - timedelta(days=50)))
    assert texts(answer) == set(TEXTS[:2])
