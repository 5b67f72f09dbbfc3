"""Searches that find nothing return nothing, and say so. Results end where evidence ends."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.audit.schemas import AuditAction, AuditQuery
from openmemory.embeddings.local import LocalEmbedder
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.answers.empty import query_excerpt, times_text
from openmemory.search.query.periods import Period
from openmemory.search.ranking import weights
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services
from openmemory.sources.schemas import NewMessage, NewMessages

TEXTS = [
    "Alice lives in Oslo with two cats",
    "The production database is backed up every night",
    "Her sister Maria is allergic to peanuts",
    "Deployments happen on Tuesdays",
    "She plays the violin in an amateur orchestra",
    "The tax adviser is called Brandt",
]
THEN = datetime(2025, 3, 10, 12, tzinfo=UTC)


def show_from(monkeypatch: pytest.MonkeyPatch, score: float) -> None:
    """Show only what scores so much, facts and others."""
    for bound in ("MIN_SCORE", "FACT_SCORE"):
        monkeypatch.setattr(weights, bound, score)


async def stored(services: Services, caller: Caller, texts: Sequence[str] = TEXTS, **fields) -> list[UUID]:
    """Memories with their vectors."""
    added = await services.memories.add_many(caller, [MemoryCreate(text=text, **fields) for text in texts])
    await services.outbox_delivery.drain()
    return [one.id for one in added]


async def found(services: Services, caller: Caller, text: str, **fields) -> tuple[list[str], str | None]:
    """The texts that a search finds, and its note."""
    answer = await services.search.search(caller, SearchQuery(text, **fields))
    return [result.memory for result in answer.results], answer.note


async def test_nothing_is_returned_where_nothing_is_found_and_the_note_says_among_what(
    services: Services, app_caller: Caller
):
    await stored(services, app_caller)
    answer = await services.search.search(app_caller, SearchQuery("quasar redshift spectroscopy"))
    assert (answer.results, answer.search_method) == ([], Method.HYBRID)
    assert answer.note == "Nothing was found for “quasar redshift spectroscopy” in the 6 memories that you may read"
    assert await found(services, app_caller, "quasar redshift", kinds=("memory",)) == (
        [],
        "Nothing was found for “quasar redshift” in the 6 memories that match the filters and that you may read",
    )


async def test_a_note_counts_only_what_the_caller_may_read(services: Services, app_caller: Caller, owner: Caller):
    await stored(services, owner, TEXTS[:4], namespace="private", created_at=THEN)
    await stored(services, owner, TEXTS[4:], namespace="shared")
    await services.memories.add(owner, MemoryCreate("Not delivered, and not for apps", namespace="private"))
    rule = GrantCreate(app=app_caller.app, effect="deny", object_type="namespace", object="private")
    await services.grants.create(owner, rule)
    _, note = await found(services, app_caller, "quasar redshift")
    assert note == "Nothing was found for “quasar redshift” in the 2 memories that you may read"
    _, note = await found(services, app_caller, "what happened in May 2019?")
    assert note is not None
    assert "go from" in note
    assert "2025-03-10" not in note
    _, note = await found(services, app_caller, "quasar redshift", namespaces=("private",))
    assert note == "No memory matches the filters of the query; without them, there are 2 memories"


async def test_a_search_that_finds_nothing_is_one_event_of_the_audit_log(services: Services, owner: Caller):
    await stored(services, owner)
    await found(services, owner, "quasar redshift")
    events = (await services.audit.read(owner, AuditQuery((AuditAction.MEMORY_SEARCH,)))).events
    assert [(event.count, event.objects) for event in events] == [(0, None)]


async def test_what_waits_for_the_index_is_counted(services: Services, owner: Caller, in_bulk: None):
    await services.memories.add_many(owner, [MemoryCreate(text) for text in TEXTS])
    _, note = await found(services, owner, "quasar redshift")
    assert note is not None
    assert "6 of them wait for the vector index" in note


async def test_a_note_counts_no_further_than_a_thousand(services: Services, owner: Caller, in_bulk: None):
    for start in (0, 600):
        new = [MemoryCreate(f"Entry {number} of the list") for number in range(start, start + 600)]
        await services.memories.add_many(owner, new)
    _, note = await found(services, owner, "quasar redshift")
    assert note is not None
    assert "in more than 1,000 memories that you may read" in note
    _, note = await found(services, owner, "quasar redshift", namespaces=("elsewhere",))
    assert note == "No memory matches the filters of the query; without them, there are more than 1,000 memories"


async def test_hits_below_the_bound_are_not_shown_unless_everything_is_asked_for(
    services: Services, app_caller: Caller, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    await stored(services, app_caller)
    query = "who plays the violin in the orchestra at night?"
    every = (await services.search.search(owner, SearchQuery(query, everything=True))).results
    scores = [result.score for result in every]
    assert len(scores) > 1
    assert None not in scores
    show_from(monkeypatch, (scores[0] + scores[1]) / 2)
    shown = (await services.search.search(app_caller, SearchQuery(query))).results
    assert [result.id for result in shown] == [every[0].id]
    logs = [(await services.memories.access_log(owner, result.id)).total for result in every[:2]]
    assert logs == [1, 0]  # what is not shown is not logged


async def test_a_text_that_contains_the_query_as_written_is_shown_at_any_score(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    show_from(monkeypatch, 1.1)
    monkeypatch.setattr(weights, "LITERAL", 1.1)
    await stored(services, owner, [*TEXTS, "The ticket is SN-2041, map(x => x / 10), and the host is 🦊"])
    for query in ("SN-2041", "sn-2041", "2041", "=>", "🦊", "the host is"):
        texts, note = await found(services, owner, query)
        assert [text[:10] for text in texts] == ["The ticket"], (query, note)
    assert (await found(services, owner, "who is the tax adviser of Alice?"))[0] == []
    assert (await found(services, owner, "🦄"))[1] == "Nothing was found for “🦄” in the 7 memories that you may read"


async def test_a_sign_is_found_in_either_style_and_newer_texts_come_first(services: Services, owner: Caller):
    await stored(services, owner, ["I ❤️ tea"], created_at=THEN)
    await stored(services, owner, ["I ❤ coffee"])
    for query in ("❤️", "❤"):
        assert (await found(services, owner, query))[0] == ["I ❤ coffee", "I ❤️ tea"]
    assert (await found(services, owner, "❤", kinds=("note",)))[0] == []


async def test_a_word_of_an_unknown_script_is_found_only_where_it_stands(services: Services, owner: Caller):
    thai = ["ฉันอาศัยอยู่ในกรุงเทพ", "แมวของฉันชื่อมะลิ", "ฉันดื่มกาแฟทุกเช้า", "น้องสาวของฉันเป็นหมอ", "ฉันแพ้ถั่วลิสง", "ฉันเล่นไวโอลิน"]
    await stored(services, owner, thai)
    assert (await found(services, owner, "ช้าง"))[0] == []
    assert (await found(services, owner, "กาแฟ"))[0] == ["ฉันดื่มกาแฟทุกเช้า"]


@pytest.mark.parametrize(
    ("query", "unread"),
    [
        ("ช้าง", True),
        ("xqzt", True),
        ("毎朝何を飲みますか？", True),
        ("как дела", True),
        ("where do I live?", False),
        ("wie heißt mein Steuerberater?", False),
        ("¿cuál es el número?", False),
        ("I", False),
        ("2041", False),
        ("what is k8s?", False),
    ],
)
async def test_the_packaged_model_tells_what_it_cannot_read(query: str, unread: bool):
    embedder = LocalEmbedder()
    try:
        assert (await embedder.query(query)).unread is unread
    finally:
        await embedder.close()


async def test_a_time_in_which_nothing_was_written_is_named_with_the_times_there_are(
    services: Services, app_caller: Caller
):
    await stored(services, app_caller, created_at=THEN)
    answer = await services.search.search(app_caller, SearchQuery("what happened in May 2019?"))
    assert (answer.results, answer.search_method) == ([], Method.TIME)
    assert answer.note == (
        "Nothing is dated 2019-05-01 to 2019-05-31; the memories that you may read go from 2025-03-10 to 2025-03-10"
    )
    texts, note = await found(services, app_caller, "what happened last week?")
    assert texts == []
    assert note is not None
    assert note.startswith("Nothing is dated ")


async def test_a_text_that_names_the_time_is_found_though_it_was_written_later(services: Services, owner: Caller):
    named = ["We married in May 2019.", "In 2019 the shop opened."]
    await stored(services, owner, [*TEXTS, *named], created_at=THEN)
    texts, note = await found(services, owner, "what happened in May 2019?")
    assert (texts, note) == (named[:1], "Nothing is dated 2019-05-01 to 2019-05-31; the texts name that time")
    assert set((await found(services, owner, "what happened in 2019?"))[0]) == set(named)


@pytest.mark.parametrize("text", ["Our anniversary is on May 8th", "Party: 8 May", "On the 8th of May we leave"])
async def test_a_day_is_found_however_a_text_spells_it(services: Services, owner: Caller, text: str):
    await stored(services, owner, [*TEXTS, text, "We married in May 2019", "Eight people come in May"], created_at=THEN)
    for question in ("what happens on 8 May", "what happened on May 8th?"):
        assert (await found(services, owner, question))[0] == [text]


async def test_a_date_is_found_in_its_technical_form_too(services: Services, owner: Caller):
    await stored(services, owner, [*TEXTS, "The contract ends on 2024-11-30"], created_at=THEN)
    assert (await found(services, owner, "30 November 2024"))[0] == ["The contract ends on 2024-11-30"]


async def test_a_subject_at_a_time_in_which_nothing_was_written_says_so(services: Services, owner: Caller):
    await stored(services, owner, created_at=THEN)
    texts, note = await found(services, owner, "what did Maria say about peanuts in May 2019?")
    assert texts[:1] == [TEXTS[2]]
    assert note is not None
    assert note.startswith("Nothing is dated 2019-05-01 to 2019-05-31")
    assert (await found(services, owner, "what did Maria say about peanuts in March 2025?"))[1] is None


async def test_passages_end_where_evidence_ends_and_an_empty_answer_says_so(
    services: Services, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    await services.conversations.add(owner, NewMessages("t", [NewMessage(text, "user") for text in TEXTS]))
    await services.outbox_delivery.drain()
    some = await services.search.passages(owner, SearchQuery("who plays the violin?"))
    assert some.results[0].content == TEXTS[4]
    none = await services.search.passages(owner, SearchQuery("quasar redshift"))
    assert (none.results, none.note) == ([], "No passage that you may read matches “quasar redshift”")
    show_from(monkeypatch, 1.1)
    monkeypatch.setattr(weights, "LITERAL", 1.1)
    assert (await services.search.passages(owner, SearchQuery("who plays the violin?"))).results == []
    assert len((await services.search.passages(owner, SearchQuery("violin"))).results) == 1


def test_what_was_looked_for_is_repeated_in_short():
    assert query_excerpt("what is my blood type?") == "“blood type”"
    assert query_excerpt("=>") == "“=>”"
    assert query_excerpt("is it?") == "“is it”"
    assert query_excerpt(" ".join(f"word{n}" for n in range(30))).endswith("word11 …”")
    assert len(query_excerpt("x" * 4_000)) < 110


def test_times_are_named_by_their_days():
    day = timedelta(days=1)
    assert times_text([Period(THEN, THEN + day)], UTC) == "2025-03-10 to 2025-03-11"
    midnight = THEN.replace(hour=0)
    assert times_text([Period(midnight, midnight + day)], UTC) == "2025-03-10"
    assert times_text([Period(midnight, None)], UTC) == "since 2025-03-10"
    assert times_text([Period(None, midnight)], UTC) == "until 2025-03-09"
    many = [Period(midnight - n * day, midnight - n * day + day) for n in range(10)]
    assert times_text(many, UTC) == "2025-03-10 or 2025-03-09 or at 8 other times that the query means"
