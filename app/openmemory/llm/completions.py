"""Reads completions and refusals of OpenAI's protocol, which servers fill in many ways. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from openmemory.llm.port import Message, Reply, estimated_tokens

NEVER_LEFT_OUT = frozenset({"model", "messages"})
"""The parameters that a request cannot do without."""

INSTEAD = {"max_tokens": "max_completion_tokens"}
"""The newer names of parameters, which some models accept in place of the older ones."""

_TOO_LONG = re.compile(
    r"context[_ ](?:length|window|size)|maximum context|too many (?:input )?tokens|reduce the length"
    r"|(?:prompt|input|request|messages?) (?:is |are )?too (?:long|large)",
    re.IGNORECASE,
)
_TYPES_OF_TEXT = (None, "text", "output_text")


def reply(text: object, messages: Sequence[Message], answer: Any, seconds: float, limit: int) -> Reply:
    """The reply with the text that the library returned, or with that of the whole `answer` if it has one."""
    usage = getattr(answer, "usage", None)
    prompt, completion = (getattr(usage, name, None) for name in ("prompt_tokens", "completion_tokens"))
    counted = isinstance(prompt, int) and isinstance(completion, int)
    choice = next(iter(getattr(answer, "choices", None) or ()), None)
    message = getattr(choice, "message", None)
    reason = getattr(choice, "finish_reason", None)
    content = (_plain(text) or _fallback_text(message))[:limit]
    return Reply(
        text=content,
        prompt_tokens=prompt if counted else sum(estimated_tokens(message["content"]) for message in messages),  # type: ignore[arg-type]
        completion_tokens=completion if counted else estimated_tokens(content),  # type: ignore[arg-type]
        counted=counted,
        seconds=seconds,
        cut=reason == "length",
        refused=bool(getattr(message, "refusal", None)) or reason == "content_filter",
    )


def _fallback_text(message: Any) -> str:
    """The text of a message that has no content: the arguments of its calls, or its reasoning."""
    calls = [getattr(call, "function", None) for call in getattr(message, "tool_calls", None) or ()]
    calls = calls or [getattr(message, "function_call", None)]
    arguments = [text for call in calls if (text := _plain(getattr(call, "arguments", None)))]
    if arguments:
        return arguments[0] if len(arguments) == 1 else f"[{', '.join(arguments)}]"
    return _plain(getattr(message, "reasoning_content", None)) or _plain(getattr(message, "reasoning", None))


def _plain(content: object) -> str:
    """The text of a content, which may be a list of parts. Parts that are no text are left out."""
    if isinstance(content, str):
        return content if content.strip() else ""
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        kind, text = (
            part.get(name) if isinstance(part, dict) else getattr(part, name, None) for name in ("type", "text")
        )
        text = part if isinstance(part, str) else text
        if isinstance(text, str) and kind in _TYPES_OF_TEXT:
            texts.append(text)
    return "".join(texts)


def refused_parameter(error: Exception, words: str, parameters: Collection[str]) -> str | None:
    """The parameter of a request that a provider refuses, by the field of its error or by its words."""
    possible = set(parameters) - NEVER_LEFT_OUT
    param = getattr(error, "param", None)
    if param in possible:
        return str(param)
    # The first that is named, because the others may be advice.
    positions = {name: at.start() for name in possible if (at := re.search(rf"\b{re.escape(name)}\b", words))}
    return min(positions, key=positions.__getitem__, default=None)


def too_long(error: Exception, words: str) -> bool:
    """Returns True if a provider refuses a request because it is longer than the model's context."""
    status, code = getattr(error, "status_code", None), getattr(error, "code", None)
    return status == 413 or _TOO_LONG.search(f"{code} {words}") is not None
