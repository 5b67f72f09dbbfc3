"""A text that the language model cannot read is a memory until the model can read it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.capture import verbatim, worker
from openmemory.capture.schemas import CaptureCreate, Turn
from openmemory.capture.status import Status
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.memories.state import State
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services
from tests.capture.conftest import Done, Say, does, numbers, operation
from tests.capture.test_order import memories, said
from tests.llm.server import Answer, LlmServer, says

pytestmark = pytest.mark.usefixtures("soon")

TEXT = "I like figs, as you know."
FIG = operation("ADD", text="Alice likes figs.")
NONSENSE = Answer("I would rather not.")

Due = Callable[[], Awaitable[None]]


@pytest.fixture
def due(inferring: Services, claude: Caller) -> Due:
    """Makes the assistant's failed captures due."""

    async def make() -> None:
        async with inferring.database.transaction() as tx:
            now = "UPDATE captures SET due_at = now() WHERE status = 'failed' AND user_id = :user"
            await tx.execute(text(now), {"user": claude.user_id})
        inferring.capturing.wake()

    return make


async def found(services: Services, caller: Caller, query: str) -> list[str]:
    answer = await services.search.search(caller, SearchQuery(query))
    return [result.memory for result in answer.results]


@pytest.mark.slow
async def test_a_text_that_the_model_cannot_read_is_found_and_later_replaced_by_facts(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say, done: Done, due: Due
) -> None:
    model.script = lambda _: NONSENSE
    outcome = await say(TEXT)
    await done(outcome, Status.FAILED)
    assert await found(inferring, claude, "figs") == [TEXT]
    model.script = does(FIG)
    await due()
    await done(outcome)

    assert await memories(inferring, self_) == ["Alice likes figs."]
    assert await memories(inferring, self_, State.ARCHIVED) == [TEXT]
    assert numbers(model.asked[-1]) == {}, "the text itself is not shown beside it"
    await inferring.captures.undo(self_, outcome.capture_id)
    assert await memories(inferring, self_) == []
    assert await memories(inferring, self_, State.DELETED) == ["Alice likes figs.", TEXT]


@pytest.mark.slow
async def test_a_text_is_a_memory_while_the_model_is_away_too(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done, eventually: Any
) -> None:
    model.script = lambda _: Answer("away", status=404)
    outcome = await say(TEXT)

    async def is_there() -> bool:
        return await memories(inferring, claude) == [TEXT]

    await eventually(is_there)
    assert (await inferring.captures.get(claude, outcome.capture_id)).status in (Status.PENDING, Status.WORKING)
    model.script = does(FIG)
    await done(outcome)
    assert await memories(inferring, claude) == ["Alice likes figs."]


@pytest.mark.slow
@pytest.mark.parametrize(
    "operations", [[], [operation("NONE", reason="junk", text=TEXT)], [operation("ADD", text=TEXT)]]
)
async def test_a_text_stays_if_no_other_memory_says_it(
    inferring: Services, model: LlmServer, self_: Caller, say: Say, done: Done, due: Due, operations: list[Any]
) -> None:
    model.script = lambda _: NONSENSE
    outcome = await say(TEXT)
    await done(outcome, Status.FAILED)
    model.script = does(*operations)
    await due()
    await done(outcome)
    assert await memories(inferring, self_) == [TEXT]
    await inferring.captures.undo(self_, outcome.capture_id)
    assert await memories(inferring, self_) == []


@pytest.mark.slow
async def test_a_text_whose_memory_the_user_changed_is_not_read_again(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say, done: Done, due: Due
) -> None:
    model.script = lambda _: NONSENSE
    changed, deleted = await say(TEXT), await say("I like dates.")
    await done(changed, Status.FAILED)
    await done(deleted, Status.FAILED)
    view = await inferring.captures.get(claude, changed.capture_id)
    await inferring.memories.update(self_, view.results[0].id, MemoryUpdate(text="I loathe figs."))
    view = await inferring.captures.get(claude, deleted.capture_id)
    await inferring.memories.delete(self_, [view.results[0].id])
    asked = len(model.asked)
    model.script = does(FIG)
    await due()
    await done(changed)
    await done(deleted)

    assert len(model.asked) == asked
    assert await memories(inferring, self_) == ["I loathe figs."]


@pytest.mark.slow
@pytest.mark.parametrize("later", [False, True])
async def test_a_text_that_is_the_fact_takes_its_place_among_the_others(
    inferring: Services, model: LlmServer, self_: Caller, say: Say, done: Done, due: Due,
    remembered: Callable[..., Awaitable[Any]], later: bool,
) -> None:  # fmt: skip
    old = "Dan lives in Porto."
    if not later:
        await remembered(old)
    model.script = lambda _: NONSENSE
    outcome = await say("Dan lives in Lisbon.")
    await done(outcome, Status.FAILED)
    if later:
        await remembered(old)
    model.script = lambda asked: says(
        {"operations": [operation("SUPERSEDE", id=numbers(asked)[old], text="Dan lives in Lisbon.")]}
    )
    await due()
    await done(outcome)
    assert await memories(inferring, self_) == [old if later else "Dan lives in Lisbon."]
    await inferring.captures.undo(self_, outcome.capture_id)
    assert await memories(inferring, self_) == [old]


@pytest.mark.slow
async def test_giving_up_a_text_takes_its_memory_back(
    inferring: Services, model: LlmServer, self_: Caller, say: Say, done: Done
) -> None:
    model.script = lambda _: NONSENSE
    outcome = await say(TEXT)
    await done(outcome, Status.FAILED)
    assert (await inferring.captures.undo(self_, outcome.capture_id)).status is Status.UNDONE
    assert await memories(inferring, self_) == []


@pytest.mark.slow
async def test_a_conversation_becomes_memories_of_a_bounded_size(
    inferring: Services, model: LlmServer, claude: Caller, done: Done
) -> None:
    model.script = lambda _: NONSENSE
    turns = (Turn("user", "Where is my passport?"), Turn("assistant", "In the drawer."))
    outcome = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text=""), turns, wait=True))
    await done(outcome, Status.FAILED)
    assert await memories(inferring, claude) == ["user: Where is my passport?\nassistant: In the drawer."]
    assert verbatim.texts(turns, 28) == ["user: Where is my passport?", "assistant: In the drawer."]
    assert verbatim.texts(turns, 21) == [turns[0].content, turns[1].content]


async def test_a_text_at_which_the_model_breaks_does_not_hold_up_the_others(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "MAX_UNANSWERED", 2)
    model.script = lambda asked: Answer("broken", status=500) if said(asked) == TEXT else says({"operations": [FIG]})
    poison = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text=TEXT), wait=False))
    behind = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text="I like dates."), wait=False))
    await done(behind)
    await done(poison, Status.FAILED)
    assert await memories(inferring, claude) == ["Alice likes figs.", TEXT]


@pytest.mark.slow
async def test_another_model_reads_what_one_could_not(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done
) -> None:
    model.script = lambda _: NONSENSE
    outcome = await say(TEXT)
    await done(outcome, Status.FAILED)
    model.script = does(FIG)
    async with inferring.database.transaction() as tx:
        await tx.execute(text("UPDATE captures SET model = 'older' WHERE id = :id"), {"id": outcome.capture_id})
    await done(await say("I like dates.", namespace="other"))
    await done(outcome)


@pytest.mark.parametrize("least", [1, 0])
async def test_what_exceeds_the_context_is_asked_without_memories_and_then_kept_as_it_is(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done,
    remembered: Callable[..., Awaitable[Any]], least: int,
) -> None:  # fmt: skip
    await remembered("Bob likes plums.")

    def answer(asked: dict[str, Any]) -> Answer:
        if len(numbers(asked)) >= least:
            return Answer("This model's maximum context length is 4096 tokens.", status=400)
        return says({"operations": [FIG]})

    model.script = answer
    outcome = await say(TEXT)
    assert len(model.asked) == 2
    assert outcome.status is (Status.DONE if least else Status.FAILED)
    assert await memories(inferring, claude) == sorted(["Bob likes plums.", "Alice likes figs." if least else TEXT])
    assert least or "maximum context length" in str(outcome.error)


async def test_what_cannot_be_stored_costs_no_other_operation(
    inferring: Services, model: LlmServer, claude: Caller, say: Say
) -> None:
    bad = ["a \0 b", "cut \ud83d here", 5, None]
    spoilt = [operation("ADD", text=each, reason=each, kind=each) for each in bad]
    model.script = does(*spoilt, operation("ADD", text="x" * 20_000), FIG)
    outcome = await say(TEXT)
    assert outcome.status is Status.DONE
    assert await memories(inferring, claude) == ["Alice likes figs.", "a \ufffd b", "cut \ufffd here"]
    assert [each.reason for each in outcome.refused] == ["invalid", "invalid", "too_large"]


async def test_a_search_that_finds_nothing_says_that_texts_wait(
    inferring: Services, model: LlmServer, claude: Caller, self_: Caller, say: Say, inferring_api: httpx.AsyncClient
) -> None:
    model.script = lambda _: Answer("away", status=429, headers={"retry-after": "600"})
    await say(TEXT)
    await say("I like dates.", namespace="fruit")
    other = await inferring.directory.caller(claude.user, "cursor")
    notes = {
        caller.app: (await inferring.search.search(caller, SearchQuery("figs"))).note or ""
        for caller in (claude, other)
    }
    assert "2 texts wait for the language model" in notes["claude"]
    assert "wait" not in notes["cursor"], "another app's texts are not told"
    one = await inferring.search.search(self_, SearchQuery("figs", namespaces=("fruit",)))
    assert "1 text waits for the language model" in (one.note or "")
    found = await inferring_api.post("/api/v1/memories/search", json={"query": "figs", "user_id": claude.user})
    assert "2 texts wait for the language model" in found.json()["note"]


@pytest.mark.slow
async def test_the_operator_is_told_of_what_waits_and_what_failed(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done
) -> None:
    model.script = lambda _: NONSENSE
    await done(await say(TEXT), Status.FAILED)
    model.script = lambda _: Answer("no such model", status=404)
    late = await say("I like dates.")
    async with inferring.database.transaction() as tx:
        old = "UPDATE captures SET created_at = now() - interval '1 hour' WHERE id = :id"
        await tx.execute(text(old), {"id": late.capture_id})
    diagnosis = await inferring.health.diagnose()

    assert diagnosis.counts["captures_failed"] >= 1
    assert diagnosis.counts["captures_waiting"] >= 1
    told = [each for each in diagnosis.problems if each.startswith("captures: ")]
    assert any("no such model" in each for each in told)
    assert any("could not read" in each for each in told)
    assert diagnosis.status == "degraded"
