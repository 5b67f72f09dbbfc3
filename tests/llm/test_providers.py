"""Language models over a real socket: what is sent, what comes of it, and what a failure tells."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from openmemory.egress.clients import Egress
from openmemory.llm.port import LanguageModel, LlmUnavailable, estimated_tokens
from openmemory.llm.providers import Llms, ProviderLlm
from tests.llm.server import Answer, LlmServer, says

KEY = "test-key-0123456789"
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]


@pytest.fixture
def server() -> Iterator[LlmServer]:
    made = LlmServer()
    yield made
    made.close()


def model(server: LlmServer, **more: Any) -> LanguageModel:
    given: dict[str, Any] = {
        "provider": "openai", "model": "m", "temperature": 0.1, "max_tokens": 100, "api_key": SecretStr(KEY),
        "base_url": server.url, "trusted": True, "timeout": 30.0,
    }  # fmt: skip
    return LanguageModel(**given | more)


@asynccontextmanager
async def opened(wanted: LanguageModel, folder: Path, egress: Egress | None = None) -> AsyncIterator[ProviderLlm]:
    llm = ProviderLlm(wanted, folder, egress or Egress())
    try:
        yield llm
    finally:
        await llm.close()


async def failure(wanted: LanguageModel, folder: Path) -> LlmUnavailable:
    async with opened(wanted, folder) as llm:
        with pytest.raises(LlmUnavailable) as caught:
            await llm.ask(TURNS, SCHEMA)
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert KEY not in repr(caught.value.__context__)
    return caught.value


async def test_a_question_is_sent_as_configured_and_its_tokens_are_counted(server: LlmServer, tmp_path: Path) -> None:
    server.script = lambda _: says({"ok": True})
    async with opened(model(server), tmp_path) as llm:
        reply = await llm.ask(TURNS, SCHEMA)
    assert (reply.text, reply.counted, reply.cut, reply.refused) == ('{"ok": true}', True, False, False)
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 3)
    [asked] = server.asked
    assert (asked["model"], asked["temperature"], asked["max_tokens"], asked["messages"]) == ("m", 0.1, 100, TURNS)
    assert asked["response_format"]["json_schema"]["schema"] == SCHEMA
    assert server.keys == [KEY]


async def test_tokens_that_nobody_counts_are_estimated(server: LlmServer, tmp_path: Path) -> None:
    server.script = lambda _: Answer("{}", counted=False)
    async with opened(model(server), tmp_path) as llm:
        reply = await llm.ask(TURNS, SCHEMA)
    assert not reply.counted
    assert reply.prompt_tokens == sum(estimated_tokens(turn["content"]) for turn in TURNS)


@pytest.mark.parametrize(
    ("answer", "cut", "refused"),
    [
        (Answer('{"a', finish="length"), True, False),
        (Answer(None, refusal="I cannot."), False, True),
        (Answer("", finish="content_filter"), False, True),
        (Answer(""), False, False),
    ],
)
async def test_an_answer_without_its_end_and_a_refusal_are_told(
    server: LlmServer, tmp_path: Path, answer: Answer, cut: bool, refused: bool
) -> None:
    server.script = lambda _: answer
    async with opened(model(server), tmp_path) as llm:
        reply = await llm.ask(TURNS, SCHEMA)
    assert (reply.text, reply.cut, reply.refused) == (answer.text or "", cut, refused)


async def test_a_server_that_knows_no_schemas_is_asked_in_a_weaker_form_from_then_on(
    server: LlmServer, tmp_path: Path
) -> None:
    def script(asked: dict[str, Any]) -> Answer:
        kind = asked.get("response_format", {}).get("type")
        return says({}) if kind is None else Answer(f"response_format {kind} is not supported", status=400)

    server.script = script
    async with opened(model(server), tmp_path) as llm:
        assert (await llm.ask(TURNS, SCHEMA)).text == "{}"
        assert (await llm.ask(TURNS, SCHEMA)).text == "{}"
    assert [asked.get("response_format", {}).get("type") for asked in server.asked] == [
        "json_schema", "json_object", None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "words", "wait", "setup"),
    [
        (Answer("slow down", status=429, headers={"retry-after": "7"}), "slow down", 7.0, False),
        (Answer("broken", status=500), "broken", None, False),
        (Answer(f"Incorrect API key {KEY}", status=401), "the key was refused (401)", None, True),
        (Answer(f"what is {KEY}?", status=400), "what is ***?", None, True),
        (Answer("no such model", status=404), "no such model", None, True),
        (Answer(raw=b"<html>"), "openai/m", None, False),
        (Answer(raw=b"{}"), "openai/m", None, False),
    ],
)
async def test_a_failure_is_told_in_one_line_without_the_key(
    server: LlmServer, tmp_path: Path, answer: Answer, words: str, wait: float | None, setup: bool
) -> None:
    server.script = lambda _: answer
    error = await failure(model(server), tmp_path)
    assert words in str(error)
    assert (error.retry_after, error.setup) == (wait, setup)
    assert len(server.asked) == 1, "a library retried by itself"


async def test_an_answer_that_does_not_come_ends_with_the_deadline(server: LlmServer, tmp_path: Path) -> None:
    server.script = lambda _: Answer("{}", delay=1.0)
    error = await failure(model(server, timeout=0.3), tmp_path)
    assert "0.3 s" in str(error) or "imed out" in str(error)


async def test_few_are_asked_at_once(server: LlmServer, tmp_path: Path) -> None:
    server.script = lambda _: Answer("{}", delay=0.05)
    async with opened(model(server, concurrency=3), tmp_path) as llm:
        await asyncio.gather(*(llm.ask(TURNS, SCHEMA) for _ in range(12)))
    assert len(server.asked) == 12
    assert server.most_at_once == 3


async def test_the_environment_sends_nothing_elsewhere(
    server: LlmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mem0 asks OpenRouter wherever there is a key of theirs, and a proxy of the environment would see everything."""
    monkeypatch.setenv("OPENROUTER_API_KEY", "openrouter-0123456789")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    async with opened(model(server), tmp_path) as llm:
        await llm.ask(TURNS, SCHEMA)
    assert server.keys == [KEY]


async def test_no_key_of_the_environment_goes_to_an_address_that_was_configured(
    server: LlmServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"OPENAI_API_KEY": "environment-0123456789"}
    monkeypatch.setenv("OPENAI_API_KEY", environ["OPENAI_API_KEY"])
    llm = ProviderLlm(model(server, api_key=SecretStr("")), tmp_path, Egress(), environ)
    await llm.ask(TURNS, SCHEMA)
    await llm.close()
    assert server.keys == ["none"]


async def test_an_address_that_was_saved_must_be_let_out(server: LlmServer, tmp_path: Path) -> None:
    error = await failure(model(server, trusted=False, by_settings=False), tmp_path)
    assert "egress.allow" in str(error)
    assert error.setup
    assert server.asked == []
    async with opened(
        model(server, trusted=False, by_settings=False), tmp_path, Egress([f"127.0.0.1:{server.port}"])
    ) as llm:
        await llm.ask(TURNS, SCHEMA)
    assert len(server.asked) == 1


async def test_ollama_is_asked_by_the_protocol_that_needs_no_library(server: LlmServer, tmp_path: Path) -> None:
    ollama = model(server, provider="ollama", base_url=f"127.0.0.1:{server.port}", api_key=SecretStr(""))
    async with opened(ollama, tmp_path) as llm:
        await llm.ask(TURNS, SCHEMA)
    assert server.asked[0]["path"] == "/v1/chat/completions"
    assert server.keys == ["none"]


@pytest.mark.parametrize("provider", ["deepseek", "lmstudio", "vllm", "xai", "minimax", "openai_structured"])
async def test_what_speaks_openais_protocol_needs_no_library_of_its_own(
    server: LlmServer, tmp_path: Path, provider: str
) -> None:
    server.script = lambda _: says({"ok": 1})
    async with opened(model(server, provider=provider), tmp_path) as llm:
        assert (await llm.ask(TURNS, SCHEMA)).text == '{"ok": 1}'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"provider": "anthropic"},
            "needs the package anthropic, which is not installed: pip install 'openmemory-server[",
        ),
        ({"provider": "groq"}, "groq has a fixed address"),
        ({"provider": "groq", "base_url": ""}, "needs the package groq"),
        ({"provider": "nobody"}, "'nobody' is unknown; valid are anthropic,"),
        ({"provider": "gemini", "base_url": "", "by_settings": False}, "can be chosen only in the settings"),
        ({"base_url": "ftp://example.com"}, "llm.base_url"),
    ],
)
async def test_what_cannot_be_asked_is_told_in_words(
    server: LlmServer, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    error = await failure(model(server, **change), tmp_path)
    assert words in str(error)
    assert error.setup


async def test_another_configuration_has_another_client(server: LlmServer, tmp_path: Path) -> None:
    llms = Llms(tmp_path, Egress())
    first = llms.of(model(server))
    assert llms.of(model(server)) is first
    second = llms.of(model(server, temperature=0.5))
    assert second is not first
    await second.ask(TURNS, SCHEMA)
    await llms.close()
    with pytest.raises(LlmUnavailable, match="closed"):
        await first.ask(TURNS, SCHEMA)


def test_estimates_are_rather_too_high() -> None:
    assert estimated_tokens("") == 0
    assert estimated_tokens("word") == 1
    assert estimated_tokens("2026-11-22") == 10
    assert estimated_tokens("日本語") == 3
