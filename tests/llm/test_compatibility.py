"""What servers make of OpenAI's protocol: where the text of an answer stands, and what of a request they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from openmemory.llm.port import LlmUnavailable, PromptRefused, PromptTooLong
from tests.llm.server import Answer, LlmServer
from tests.llm.test_providers import KEY, SCHEMA, TURNS, model, opened, server

__all__ = ["server"]

FOUND = '{"operations": []}'


def call(arguments: str) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "answer", "arguments": arguments}}


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": [{"type": "text", "text": '{"operations"'}, {"type": "text", "text": ": []}"}]}, FOUND),
        ({"content": ["", FOUND]}, FOUND),
        ({"content": [{"type": "thinking", "text": "hm"}, {"type": "output_text", "text": FOUND}, {"n": 1}]}, FOUND),
        ({"content": None, "reasoning_content": FOUND}, FOUND),
        ({"content": "", "reasoning": FOUND}, FOUND),
        ({"content": FOUND, "reasoning_content": "hm"}, FOUND),
        ({"content": None, "tool_calls": [call(FOUND)]}, FOUND),
        ({"content": None, "tool_calls": [call(FOUND), call(FOUND)]}, f"[{FOUND}, {FOUND}]"),
        ({"content": None, "function_call": {"name": "answer", "arguments": FOUND}}, FOUND),
        ({"content": [], "tool_calls": [], "reasoning": 5}, ""),
        ({"content": {"operations": []}}, ""),
    ],
)
async def test_the_text_is_found_where_the_server_puts_it(
    server: LlmServer, tmp_path: Path, message: dict[str, Any], text: str
) -> None:
    server.script = lambda _: Answer(message=message)
    async with opened(model(server), tmp_path) as llm:
        assert (await llm.ask(TURNS, SCHEMA)).text == text


@pytest.mark.parametrize(
    ("name", "words", "error"),
    [
        ("temperature", "Unsupported value: 'temperature' does not support 0.1 with this model.", {}),
        ("top_p", "`temperature` and `top_p` cannot both be specified. Please use only one.", {"param": "top_p"}),
        ("top_p", "property 'top_p' is unsupported", {}),
        ("max_tokens", "max_tokens is too large: 100. The maximum context length is 64", {}),
        ("response_format", "Invalid parameter", {"param": "response_format"}),
    ],
)
async def test_a_parameter_that_the_server_refuses_is_left_out_from_then_on(
    server: LlmServer, tmp_path: Path, name: str, words: str, error: dict[str, Any]
) -> None:
    def script(asked: dict[str, Any]) -> Answer:
        return Answer(words, status=400, error=error) if name in asked else Answer(FOUND)

    server.script = script
    async with opened(model(server), tmp_path) as llm:
        assert (await llm.ask(TURNS, SCHEMA)).text == FOUND
        refused = len(server.asked) - 1
        assert (await llm.ask(TURNS, SCHEMA)).text == FOUND
    assert refused in (1, 2)
    assert [name in asked for asked in server.asked] == [True] * refused + [False] * 2
    assert all("temperature" in asked or name == "temperature" for asked in server.asked), "nothing else is left out"


@pytest.mark.parametrize("newer_is_refused", [False, True])
async def test_a_parameter_with_a_newer_name_is_sent_under_it(
    server: LlmServer, tmp_path: Path, newer_is_refused: bool
) -> None:
    words = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."

    def script(asked: dict[str, Any]) -> Answer:
        if "max_tokens" in asked:
            return Answer(words, status=400, error={"param": "max_tokens"})
        if "max_completion_tokens" in asked and newer_is_refused:
            return Answer("max_completion_tokens: extra fields not permitted", status=422)
        return Answer(FOUND)

    server.script = script
    async with opened(model(server), tmp_path) as llm:
        await llm.ask(TURNS, SCHEMA)
        await llm.ask(TURNS, SCHEMA)
    assert len(server.asked) == 4 if newer_is_refused else 3
    assert server.asked[-1].get("max_completion_tokens") == (None if newer_is_refused else 100)


async def test_a_server_that_refuses_everything_is_asked_a_few_times_only(server: LlmServer, tmp_path: Path) -> None:
    server.script = lambda asked: Answer(f"unsupported: {', '.join(asked)}", status=400)
    async with opened(model(server), tmp_path) as llm:
        with pytest.raises(PromptRefused):
            await llm.ask(TURNS, SCHEMA)
    assert len(server.asked) <= 7
    assert set(server.asked[-1]) == {"model", "messages", "path"}


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer("This model's maximum context length is 4096 tokens.", status=400), PromptTooLong),
        (Answer("x", status=400, error={"code": "context_length_exceeded"}), PromptTooLong),
        (Answer("the request exceeds the available context size", status=400), PromptTooLong),
        (Answer("prompt is too long: 210000 tokens > 200000 maximum", status=400), PromptTooLong),
        (Answer("Request too large", status=413), PromptTooLong),
        (Answer("Invalid content", status=422), PromptRefused),
        (Answer("no such model", status=404), LlmUnavailable),
        (Answer("context_window_error", status=500), LlmUnavailable),
    ],
)
async def test_a_refusal_tells_why(server: LlmServer, tmp_path: Path, answer: Answer, kind: type[Exception]) -> None:
    server.script = lambda _: answer
    async with opened(model(server), tmp_path) as llm:
        with pytest.raises(LlmUnavailable) as caught:
            await llm.ask(TURNS, SCHEMA)
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)
    assert len(server.asked) == 1
