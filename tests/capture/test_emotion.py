"""What the user feels about what is remembered: asked for only where the settings say so."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import pytest

from openmemory.capture.answers import LABEL, operations
from openmemory.identity.caller import Caller
from openmemory.llm.port import Reply
from openmemory.services import Services
from tests.capture.conftest import Say, does, numbers, operation
from tests.llm.server import LlmServer, says

GLAD = {"valence": 0.9, "arousal": 0.6, "label": "proud"}
Remembered = Callable[..., Awaitable[UUID]]


@pytest.fixture
def feeling(inferring: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """`capture.emotion` is on."""
    capture = inferring.settings.capture.model_copy(update={"emotion": True})
    settings = inferring.settings.model_copy(update={"capture": capture})
    monkeypatch.setattr(inferring.capturing.extractor, "_settings", settings)


def read(value: Any) -> dict[str, Any] | None:
    told = json.dumps({"operations": [{"op": "ADD", "text": "x", "emotion": value}]})
    [found] = operations(Reply(told, 1, 1, True, 0.1))
    return found.emotion


@pytest.mark.parametrize(
    ("value", "emotion"),
    [
        (GLAD, GLAD),
        (
            {"valence": -7, "arousal": 3, "label": " Very \n Angry "},
            {"valence": -1, "arousal": 1, "label": "very angry"},
        ),
        ({"valence": "0.5", "arousal": -0.2, "label": None}, {"valence": 0.5, "arousal": 0}),
        ({"valence": 1, "arousal": 0.33333333, "label": 3}, {"valence": 1, "arousal": 0.333}),
        ({"valence": 0.5, "label": "glad"}, None),
        ({"valence": True, "arousal": 0.5}, None),
        ({"valence": float("nan"), "arousal": 0.5}, None),
        ({"valence": 0.5, "arousal": float("inf")}, None),
        ({"valence": "good", "arousal": []}, None),
        ("glad", None),
        (None, None),
    ],
)
def test_what_a_model_says_of_an_emotion_is_kept_within_its_bounds_or_left_out(value: Any, emotion: Any) -> None:
    assert read(value) == emotion


def test_a_long_label_is_cut() -> None:
    found = read(GLAD | {"label": "x" * 1_000})
    assert found is not None
    assert found["label"] == "x" * LABEL


@pytest.mark.usefixtures("feeling")
async def test_an_emotion_is_kept_in_the_metadata_and_in_the_history(
    inferring: Services, model: LlmServer, claude: Caller, say: Say
) -> None:
    model.script = does(operation("ADD", text="Alice finished her first marathon.", emotion=GLAD))
    outcome = await say("I finished my first marathon!!", metadata={"source": "chat"})
    assert '"emotion"' in model.asked[-1]["messages"][0]["content"]
    schema = model.asked[-1]["response_format"]["json_schema"]["schema"]
    assert "emotion" in schema["properties"]["operations"]["items"]["required"]
    record = await inferring.memories.get(claude, outcome.results[0].id)
    assert record.metadata_ == {"source": "chat", "emotion": GLAD}
    model.script = lambda asked: says(
        {"operations": [operation("SUPERSEDE", id=numbers(asked)[record.content], text="Alice has run two marathons.")]}
    )
    after = (await say("Now I have run two.")).results[0].id
    assert (await inferring.memories.get(claude, after)).metadata_ == {}


@pytest.mark.usefixtures("feeling")
async def test_an_update_brings_an_emotion_and_its_undoing_takes_it_back(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, remembered: Remembered
) -> None:
    id_ = await remembered("Alice has a cat.", metadata={"a": 1})
    model.script = lambda asked: says(
        {
            "operations": [
                operation("UPDATE", id=numbers(asked)["Alice has a cat."], text="Alice has a cat, Mia.", emotion=GLAD)
            ]
        }
    )
    outcome = await say("My cat Mia is the best.")
    record = await inferring.memories.get(claude, id_)
    assert (record.content, record.metadata_) == ("Alice has a cat, Mia.", {"a": 1, "emotion": GLAD})
    history = await inferring.memories.history(claude, id_)
    assert [change.metadata_ for change in history.revisions][-1] == {"a": 1, "emotion": GLAD}
    await inferring.captures.undo(claude, outcome.capture_id)
    record = await inferring.memories.get(claude, id_)
    assert (record.content, record.metadata_) == ("Alice has a cat.", {"a": 1})


@pytest.mark.usefixtures("feeling")
async def test_what_the_user_keeps_under_that_name_stays(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, remembered: Remembered
) -> None:
    model.script = does(operation("ADD", text="Alice likes figs.", emotion=GLAD))
    outcome = await say("I like figs.", metadata={"emotion": "mine"})
    assert (await inferring.memories.get(claude, outcome.results[0].id)).metadata_ == {"emotion": "mine"}
    id_ = await remembered("Alice has a dog.", metadata={"emotion": None})
    model.script = lambda asked: says(
        {
            "operations": [
                operation("UPDATE", id=numbers(asked)["Alice has a dog."], text="Alice has a dog, Rex.", emotion=GLAD)
            ]
        }
    )
    await say("My dog is called Rex.")
    record = await inferring.memories.get(claude, id_)
    assert (record.content, record.metadata_) == ("Alice has a dog, Rex.", {"emotion": None})


async def test_nothing_is_asked_and_nothing_kept_unless_the_settings_say_so(
    inferring: Services, model: LlmServer, claude: Caller, say: Say
) -> None:
    model.script = does(operation("ADD", text="Alice likes figs.", emotion=GLAD))
    outcome = await say("I like figs.")
    assert "emotion" not in json.dumps(model.asked[-1])
    assert (await inferring.memories.get(claude, outcome.results[0].id)).metadata_ == {}
