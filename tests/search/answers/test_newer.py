"""A search shows the newer memory before the older one that it may replace."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.schemas import SearchAnswer, SearchQuery
from openmemory.services import Services

OLD, NEW = "I live in Hamburg.", "I moved to Leipzig last week."
QUESTION = "Which town is Hamburg, where do I live?"
LONG_AGO = datetime(2026, 3, 1, tzinfo=UTC)
OTHERS = ["The webshop sells tea.", "Anna plays chess.", "The invoice is due in May.", "Our cat is called Mo."]


async def told(services: Services, caller: Caller, *texts: str, **fields: object) -> list[UUID]:
    """Memories of these texts, a day apart, in the index. `fields` are those of the last one."""
    ids = []
    for place, said in enumerate(texts):
        more = fields if place == len(texts) - 1 else {}
        new = MemoryCreate(said, created_at=LONG_AGO + timedelta(days=place), **more)  # type: ignore[arg-type]
        ids.append((await services.memories.add(caller, new)).id)
    await services.outbox_delivery.drain()
    return ids


async def asked(services: Services, caller: Caller, question: str = QUESTION, **more: object) -> SearchAnswer:
    return await services.search.search(caller, SearchQuery(question, **more))  # type: ignore[arg-type]


def texts(answer: SearchAnswer) -> list[str]:
    return [result.memory for result in answer.results]


async def test_the_newer_comes_first_and_the_older_is_marked(services: Services, app_caller: Caller):
    old, new = await told(services, app_caller, OLD, NEW)
    answer = await asked(services, app_caller)
    assert texts(answer) == [NEW, OLD]
    first, second = answer.results
    assert (first.older, second.newer) == (old, new)
    assert (first.newer, second.older) == (None, None)
    assert first.score >= second.score


@pytest.mark.parametrize(
    ("older", "newer", "question"),
    [
        ("I use VS Code as my editor.", "I switched to Neovim.", "What is my editor?"),
        ("I work at Acme.", "I started at Globex on Monday.", "Where do I work?"),
        ("My favourite colour is green.", "My favourite colour is blue now.", "What is my favourite colour?"),
        ("The database port is 5433.", "The database port is 5434.", "database port"),
        ("Ich wohne in Hamburg.", "Ich wohne jetzt in Leipzig.", "Wo wohne ich?"),
    ],
)
async def test_among_others_too(services: Services, app_caller: Caller, older: str, newer: str, question: str):
    await told(services, app_caller, older, *OTHERS, newer)
    found = texts(await asked(services, app_caller, question))
    assert found.index(newer) < found.index(older)


async def test_what_the_search_did_not_find_is_brought(services: Services, app_caller: Caller):
    await told(services, app_caller, OLD, *OTHERS, NEW)
    answer = await asked(services, app_caller, "Hamburg", limit=2)
    assert texts(answer) == [NEW, OLD]
    assert len((await asked(services, app_caller, "Hamburg", limit=1)).results) == 1


async def test_what_is_shown_is_in_the_access_log(services: Services, app_caller: Caller, owner: Caller):
    _, *_, new = await told(services, app_caller, OLD, *OTHERS, NEW)
    await asked(services, app_caller, "Hamburg", limit=2)
    log = await services.memories.access_log(owner, new)
    assert [entry.access_type for entry in log.logs] == ["search"]


async def test_the_newest_of_several_comes_first(services: Services, app_caller: Caller):
    newest = "I live in Dresden now."
    *older, last = await told(services, app_caller, OLD, NEW, newest)
    answer = await asked(services, app_caller, "Where do I live, in Hamburg?")
    assert texts(answer)[0] == newest
    assert older[0] in {result.id for result in answer.results}
    assert [result.newer for result in answer.results] == [None] + [last] * (len(answer.results) - 1)


async def test_a_question_about_what_was_leaves_the_older_first(services: Services, app_caller: Caller):
    await told(services, app_caller, OLD, NEW)
    assert texts(await asked(services, app_caller, "Where did I use to live? Hamburg?")) == [OLD, NEW]


async def test_a_question_about_what_was_has_an_answer_though_one_result_is_allowed(
    services: Services, app_caller: Caller
):
    await told(services, app_caller, OLD, NEW)
    [result] = (await asked(services, app_caller, "Where did I use to live, in Hamburg?", limit=1)).results
    assert result.memory == OLD


async def test_a_question_about_a_time_leaves_the_memory_of_that_time_first(services: Services, app_caller: Caller):
    later = LONG_AGO + timedelta(days=100)
    [old] = await told(services, app_caller, OLD)
    new = (await services.memories.add(app_caller, MemoryCreate(NEW, created_at=later))).id
    await services.outbox_delivery.drain()
    question = "Where did I live in March 2026, in Hamburg?"
    answer = await asked(services, app_caller, question)
    assert texts(answer) == [OLD, NEW]
    assert [result.newer for result in answer.results] == [new, None]
    [result] = (await asked(services, app_caller, question, limit=1)).results
    assert result.id == old
    for question in ("Where do I live since March 2026, in Hamburg?", "Where do I live in June 2026, in Hamburg?"):
        assert texts(await asked(services, app_caller, question)) == [NEW, OLD]


async def test_a_memory_without_the_number_asked_for_does_not_come_first(services: Services, app_caller: Caller):
    exact, *others = (f"Writer 5 keeps note number {n} about topic 0." for n in (0, 7, 14, 21))
    await told(services, app_caller, exact, *others)
    first, *_ = (await asked(services, app_caller, exact)).results
    assert (first.memory, first.newer) == (exact, None)


async def test_what_may_replace_a_memory_does_not_hold_the_signs_that_were_asked_for(
    services: Services, app_caller: Caller
):
    staging = "The staging server of the webshop is called 🦊."
    port = "The database port of the webshop is 5434 since the move to the new server."
    await told(services, app_caller, staging, port)
    assert texts(await asked(services, app_caller, "🦊")) == [staging]
    assert set(texts(await asked(services, app_caller, "the server of the webshop"))) == {staging, port}


async def test_the_parts_of_a_raised_score_add_up(services: Services, app_caller: Caller):
    await told(services, app_caller, OLD, NEW)
    first, second = (await asked(services, app_caller, explain=True)).results
    assert (first.memory, first.score) == (NEW, second.score)
    assert first.explanation is not None
    assert first.score is not None
    added = math.fsum(term.adds for term in first.explanation.features)
    assert first.score == pytest.approx(1 / (1 + math.exp(-added)))
    assert "level" in {term.feature for term in first.explanation.features}


async def test_what_may_both_hold_is_not_marked(services: Services, app_caller: Caller):
    await told(services, app_caller, "I like tea.", "I also like coffee.")
    answer = await asked(services, app_caller, "What do I like?")
    assert [result.newer for result in answer.results] == [None, None]


async def test_a_hidden_newer_memory_leaves_no_trace(services: Services, app_caller: Caller, owner: Caller):
    await told(services, app_caller, OLD)
    plain = (await asked(services, app_caller)).results
    _, secret = await told(services, owner, "Anna plays chess.", NEW)
    await services.grants.create(
        owner, GrantCreate(effect="deny", app="claude", object_type="memory", object=str(secret))
    )
    hidden = (await asked(services, app_caller)).results
    assert [(one.id, one.newer, one.older) for one in hidden] == [(one.id, None, None) for one in plain]
    assert texts(await asked(services, owner))[:2] == [NEW, OLD]


async def test_the_filters_of_the_query_hold(services: Services, app_caller: Caller):
    await told(services, app_caller, OLD, NEW, kind="note")
    answer = await asked(services, app_caller, kinds=("memory",))
    assert texts(answer) == [OLD]
    assert answer.results[0].newer is None


async def test_as_of_a_time_shows_what_held_then(services: Services, app_caller: Caller):
    await told(services, app_caller, OLD, *OTHERS, NEW)
    then = await asked(services, app_caller, as_of=LONG_AGO + timedelta(days=2))
    assert (then.results[0].memory, then.results[0].newer) == (OLD, None)
    later = await asked(services, app_caller, as_of=LONG_AGO + timedelta(days=20))
    assert texts(later)[:2] == [NEW, OLD]


@pytest.mark.parametrize(("decision", "leads"), [("both", NEW), ("different", OLD)])
async def test_what_the_user_decided_holds(services: Services, app_caller: Caller, decision: str, leads: str):
    old, *_, new = await told(services, app_caller, OLD, *OTHERS, NEW)
    first, second = sorted((old, new))
    query = "INSERT INTO kept_pairs (first, second, decision) VALUES (:first, :second, :decision)"
    async with services.database.transaction() as tx:
        await tx.execute(text(query), {"first": first, "second": second, "decision": decision})
    answer = await asked(services, app_caller, "Hamburg", limit=2)
    assert [result.newer for result in answer.results] == [None] * len(answer.results)
    assert texts(answer)[0] == leads


async def test_an_explained_search_says_why(services: Services, app_caller: Caller):
    old, *_, new = await told(services, app_caller, OLD, *OTHERS, NEW)
    answer = await asked(services, app_caller, "Hamburg", explain=True)
    shown = {result.id: result for result in answer.results}
    assert shown[new].older == old
    assert shown[old].explanation is not None
