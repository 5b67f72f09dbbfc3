"""The commands for the language model and the embedder, against a running service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clusters import furnish
from tests.journeys.service import short_parent, starting
from tests.llm.server import Answer, LlmServer, says

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def served() -> Iterator[Path]:
    """A data folder on which a service runs that may ask models of this machine."""
    with short_parent() as parent, starting(furnish(parent / "data")) as start:
        start(OPENMEMORY_EGRESS_ALLOW="127.0.0.1").ready()
        yield parent / "data"


@pytest.fixture
def answering(om: Run) -> Iterator[LlmServer]:
    """A language model, of which the service knows nothing before and after."""
    server = LlmServer()
    server.script = lambda _: says({"ok": True})
    yield server
    om("models", "reset", "llm")
    server.close()


def _lines(told: subprocess.CompletedProcess[str]) -> list[list[str]]:
    assert told.returncode == 0, told.stderr
    return [line.split("\t") for line in told.stdout.splitlines()]


@pytest.mark.slow
def test_a_language_model_is_chosen_after_it_has_answered_and_forgotten(om: Run, answering: LlmServer) -> None:
    choice = ("models", "choose", "llm", "vllm", "small", "--address", answering.url, "--key", "-")
    chosen = om(*choice, stdin="secret-of-the-model\n")
    assert chosen.stdout.strip() == "The language model is small of vllm.", chosen.stderr
    assert len(answering.asked) == 1
    shown = _lines(om("models", "show"))
    assert ["language model", "model", "small"] in shown
    assert ["language model", "api_key", "********"] in shown
    assert "secret-of-the-model" not in str(shown)
    assert ["language model", "small"] in [
        [line[0], line[1].rpartition("/")[2]] for line in _lines(om("models", "test"))
    ]
    assert om("models", "reset", "llm").returncode == 0
    assert ["language model", "model", "small"] not in _lines(om("models", "show"))


def test_a_model_that_does_not_answer_is_not_saved(om: Run, answering: LlmServer) -> None:
    before = om("models", "show", "--json").stdout
    answering.script = lambda _: Answer(status=500)
    refused = om("models", "choose", "llm", "vllm", "small", "--address", answering.url)
    assert refused.returncode == 2
    assert "does not answer" in refused.stderr
    assert om("models", "show", "--json").stdout == before


def test_instructions_are_saved_and_removed(om: Run) -> None:
    assert om("models", "instruct", "Keep", "decisions.").stdout.strip() == "Saved the instructions."
    assert ["language model", "instructions", "Keep decisions."] in _lines(om("models", "show"))
    assert om("models", "instruct").stdout.strip() == "Removed the instructions."
    found = json.loads(om("models", "show", "--json").stdout)
    assert not (found["openmemory"] or {}).get("custom_instructions")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["choose", "llm", "openai", "x", "--key", "sk-1234"], "--key: must be env:NAME"),
        (["choose", "llm", "openai", "x", "--key", "env:HOME"], "must name a variable that ends in API_KEY"),
        (["choose", "llm", "anthropic", "x", "--address", "http://a"], "--address: must be left out"),
        (["choose", "ears", "openai", "x"], "PART"),
        (["choose", "embedder", "nobody", "x"], "provider"),
    ],
)
def test_what_cannot_be_chosen_is_told(om: Run, arguments: list[str], words: str) -> None:
    told = om("models", *arguments)
    assert told.returncode == 2, told.stderr
    assert words in told.stderr
    assert "sk-1234" not in told.stdout + told.stderr
