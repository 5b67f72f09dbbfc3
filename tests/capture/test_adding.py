"""The one decision about an added text: with the language model, merged, or verbatim."""

from __future__ import annotations

import pytest

from openmemory.capture.adding import NO_LLM
from openmemory.capture.schemas import CaptureCreate, Turn
from openmemory.capture.status import Status
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import Event, MemoryCreate
from openmemory.services import Services
from tests.capture.conftest import does, operation
from tests.llm.server import LlmServer

FIGS = CaptureCreate(MemoryCreate(text="I like figs."))
TALK = CaptureCreate(MemoryCreate(text=""), (Turn("user", "I like figs."),))


async def test_the_language_model_is_asked_only_if_the_request_infers(
    inferring: Services, claude: Caller, model: LlmServer
) -> None:
    verbatim = await inferring.adding.add(claude, FIGS, infer=False)
    assert (verbatim.content, verbatim.event, verbatim.note) == ("I like figs.", Event.ADD, None)
    assert model.asked == []
    model.script = does(operation("ADD", text="Alice likes figs."))
    outcome = await inferring.adding.add(claude, FIGS, infer=True)
    assert (outcome.status, [one.memory for one in outcome.results]) == (Status.DONE, ["Alice likes figs."])
    assert (outcome.content, outcome.event, outcome.note) == ("Alice likes figs.", Event.ADD, None)


async def test_a_conversation_is_not_stored_verbatim(inferring: Services, services: Services, claude: Caller) -> None:
    for adding, infer in ((inferring.adding, False), (services.adding, True)):
        with pytest.raises(Invalid) as refused:
            await adding.add(claude, TALK, infer=infer)
        assert refused.value.code == "no_language_model"


async def test_without_a_language_model_the_answer_says_that_none_was_asked(
    services: Services, app_caller: Caller
) -> None:
    added = await services.adding.add(app_caller, FIGS, infer=True)
    assert (added.content, added.note) == ("I like figs.", NO_LLM)


async def test_a_text_that_is_known_is_not_said_to_be_stored(services: Services, app_caller: Caller) -> None:
    await services.adding.add(app_caller, FIGS, infer=True)
    again = await services.adding.add(app_caller, FIGS, infer=True)
    assert (again.event, again.note) == (Event.NONE, None)
    pairs = CaptureCreate(MemoryCreate(text="budget=50K | lead=Ada"))
    await services.adding.add(app_caller, pairs, infer=True)
    held = await services.adding.add(app_caller, CaptureCreate(MemoryCreate(text="budget=50K")), infer=True)
    assert held.event is Event.NONE
    assert "Stored verbatim" not in str(held.note)


async def test_key_value_facts_are_merged_and_other_texts_are_not(services: Services, app_caller: Caller) -> None:
    texts = ["budget=50K | lead=Ada", "budget=40K", "The budget is 30K."]
    added = [
        await services.adding.add(app_caller, CaptureCreate(MemoryCreate(text=text)), infer=False) for text in texts
    ]
    assert [row.event for row in added] == [Event.ADD, Event.UPDATE, Event.ADD]
    assert (added[1].id, added[1].content) == (added[0].id, "budget=40K | lead=Ada")
