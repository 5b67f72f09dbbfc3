"""Broad questions: who somebody is, what is new, and a line for each project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.answers.aspects import Aspect, aspect_of
from openmemory.search.answers.overview import CANDIDATES, Telling, most_telling
from openmemory.search.query.text import is_broad
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery
from openmemory.services import Services

NOW = datetime(2026, 5, 1, tzinfo=UTC)

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

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
    *lexemes: str,
    days: int = 0,
    importance: float | None = None,
    group: str = "memory",
    flagged: bool = False,
    text: str = "",
    namespace: str = "default",
) -> Telling:
    made = NOW - timedelta(days=days)
    groups, words = frozenset([group]), frozenset(lexemes)
    return Telling(uuid4(), made, importance, groups, words, flagged, text, namespace)


def texts(answer: SearchAnswer) -> set[str]:
    return {result.memory for result in answer.results}


@pytest.mark.parametrize(
    "query",
    [
        "what do you know about me?", "who am I?", "Who am I", "everything", "tell me about myself", "*", "?",
        "What have I told you?", "list all memories", "what's in my memory", "do you remember me?", "the of and",
        "show me everything you remember", "What do you know about the user?",
        "overview", "Was weißt du über mich?", "Wer bin ich?", "¿Qué sabes de mí?", "Que sais-tu de moi ?",
        "私について何を知っていますか？", "你知道关于我的什么？",
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
        "=>",
        "🦊",
        "wo wohne ich?",
        "¿dónde vivo?",
        "私の血液型は何ですか？",
        "sage",
    ],
)
def test_a_question_with_a_subject_is_not_broad(query: str):
    assert not is_broad(query)


def test_who_the_person_is_comes_before_what_is_new_and_important() -> None:
    name = telling("name", days=900, text="My name is Ada.")
    fresh, vital = telling("port", text="The port is 5434."), telling("backup", importance=1.0, text="Backups run.")
    trivial, old = (
        telling("log", importance=0.1, text="Logs rotate."),
        telling("disk", days=365, text="A disk is full."),
    )
    ids = most_telling([trivial, old, fresh, vital, name], 5)
    assert ids == [name.id, vital.id, fresh.id, trivial.id, old.id]


def test_of_ten_memories_at_most_three_are_about_projects_if_there_are_others() -> None:
    projects = [telling(f"port{n}", text=f"Service {n} has its port.", importance=1.0) for n in range(20)]
    person = [telling(f"like{n}", days=500, text=f"I like the colour number {n}.") for n in range(7)]
    ids = most_telling([*projects, *person], 10)
    assert set(ids[:7]) == {one.id for one in person}
    assert len(ids) == 10
    assert len(most_telling([*projects, *person[:2]], 10)) == 10
    assert len(most_telling(projects, 10)) == 10


def test_every_side_of_a_person_comes_before_a_second_memory_of_one() -> None:
    homes = [
        telling("leipzig", days=5, text="I moved to Leipzig."),
        telling("hamburg", days=300, text="I live in Hamburg."),
    ]
    job, sick = (
        telling("nurse", days=200, text="I work as a nurse."),
        telling("nut", days=800, text="Allergic to nuts."),
    )
    taste = telling("tea", days=700, text="I like green tea.")
    assert most_telling([*homes, job, sick, taste], 4) == [homes[0].id, job.id, sick.id, taste.id]


def test_each_project_has_a_line_before_a_second_one_of_the_same() -> None:
    shop = [telling(f"shop{n}", text=f"Shop {n}.", namespace="shop") for n in range(3)]
    sensor = telling("sensor", days=30, text="The sensor sends.", namespace="sensor")
    assert sensor.id in most_telling([*shop, sensor], 2)


def test_repetitions_come_after_what_says_something_else() -> None:
    said, again, other = (
        telling("green", "tea", "like"),
        telling("green", "tea", "like", "much"),
        telling("oslo", days=60),
    )
    assert most_telling([said, again, other], 3) == [said.id, other.id, again.id]


def test_flagged_memories_and_secrets_come_last() -> None:
    flagged, old = telling("order", importance=1.0, flagged=True), telling("oslo", days=900)
    secret = telling("key", importance=1.0, text=f"My name is Ada, my key is {SECRET}.")
    assert most_telling([flagged, secret, old], 3)[0] == old.id
    assert most_telling([flagged, secret, old], 1) == [old.id]
    assert most_telling([], 3) == []


@pytest.mark.parametrize(
    ("text", "aspect"),
    [
        ("My name is Katrin Vogel, I am 36 years old.", Aspect.IDENTITY),
        ("Ich heiße Jonas.", Aspect.IDENTITY),
        ("User's wife is called Ana", Aspect.PEOPLE),
        ("Meine Schwester studiert in Wien.", Aspect.PEOPLE),
        ("Mi hermana vive en Sevilla.", Aspect.PEOPLE),
        ("妹は京都にいます。", Aspect.PEOPLE),
        ("I started a new job at Globex.", Aspect.WORK),
        ("Trabajo como enfermera.", Aspect.WORK),
        ("I recently moved to Leipzig.", Aspect.HOME),
        ("Ich wohne in Hamburg.", Aspect.HOME),
        ("Alice is allergic to peanuts", Aspect.HEALTH),
        ("卵アレルギーがあります。", Aspect.HEALTH),
        ("Prefers dark mode", Aspect.PREFERENCES),
        ("No me gusta el cilantro.", Aspect.PREFERENCES),
        ("We are flying to Lisbon in June.", Aspect.PLANS),
        ("I use Neovim.", Aspect.OTHER),
    ],
)
def test_rules_tell_what_a_memory_says_about_a_person(text: str, aspect: Aspect) -> None:
    found = aspect_of(text, (), project=False)
    assert found is not None
    assert found.aspect is aspect


@pytest.mark.parametrize(
    "text",
    [
        "The database port moved to 5434 since the new server.",
        "The config lives on the new host.",
        "Deployments happen on Tuesdays",
        "We decided to use PostgreSQL.",
        "Payments go through Mollie.",
    ],
)
def test_what_is_about_a_project_tells_nothing_about_a_person(text: str) -> None:
    assert aspect_of(text, ("projects", "memory"), project=False) is None


def test_categories_tell_what_the_words_do_not_and_a_project_is_no_person() -> None:
    assert aspect_of("Knee surgery in May", ("health",), project=False) == (Aspect.HEALTH, 0.4)
    assert aspect_of("Tabs over spaces", ("preference",), project=False) == (Aspect.PREFERENCES, 0.6)
    assert aspect_of("The parser prefers short names", ("preferences",), project=True) is None
    assert aspect_of("I prefer tabs here", (), project=True) is not None


@pytest.mark.parametrize("query", ["what do you know about me?", "who am I?", "everything", "*", "is it?"])
async def test_a_broad_question_is_answered_with_an_overview(services: Services, app_caller: Caller, query: str):
    await stored(services, app_caller)
    answer = await services.search.search(app_caller, SearchQuery(query, limit=3))
    assert answer.search_method is Method.OVERVIEW
    assert len(texts(answer) & set(TEXTS)) == 3
    assert answer.note == "The query is broad; there are 5 memories, of which these 3 are the most telling"
    assert all((result.score, result.parts) == (None, None) for result in answer.results)
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
    assert (only.score, only.explanation, answer.explanation) == (None, None, None)
    log = await services.memories.access_log(owner, only.id)
    assert [entry.app_name for entry in log.logs] == [app_caller.app]


async def test_words_that_stand_in_a_memory_are_looked_for(services: Services, app_caller: Caller):
    await stored(services, app_caller)
    [band] = await stored(services, app_caller, ["Listening to The Who"])
    answer = await services.search.search(app_caller, SearchQuery("the who"))
    assert answer.results[0].id == band
    assert (answer.search_method, answer.note) == (Method.HYBRID, None)


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


async def test_an_empty_memory_says_so(services: Services, app_caller: Caller):
    answer = await services.search.overview(app_caller, SearchQuery(""))
    assert (answer.results, answer.note) == ([], "There is no memory that you may read")


async def test_who_somebody_is_is_found_behind_hundreds_of_newer_memories(
    services: Services, owner: Caller, in_bulk: None
):
    """By its category, as a client or the service assigned it."""
    await stored(services, owner, ["Ada, engineer, from Turin"], categories=("personal",), created_at=NOW)
    news = [
        MemoryCreate(text=f"Build {n} is green", created_at=NOW + timedelta(hours=n)) for n in range(1, CANDIDATES + 50)
    ]
    await services.memories.add_many(owner, news)
    answer = await services.search.overview(owner, SearchQuery("", limit=3))
    assert answer.results[0].memory == "Ada, engineer, from Turin"


async def test_an_overview_of_an_earlier_time_shows_what_there_was(services: Services, owner: Caller):
    await stored(services, owner, TEXTS[:2], created_at=NOW - timedelta(days=100))
    await stored(services, owner, TEXTS[2:], created_at=NOW)
    answer = await services.search.search(owner, SearchQuery("everything", as_of=NOW - timedelta(days=50)))
    assert texts(answer) == set(TEXTS[:2])
