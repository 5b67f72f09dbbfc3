"""The forms of answers."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from openmemory.config.settings import McpSettings
from openmemory.doors.mcp.toolsets import ToolChoice
from openmemory.errors import Invalid


class AnswerFormat(StrEnum):
    """The form of a tool's answer."""

    COMPACT = "compact"
    """Lines of text that cost few tokens."""
    JSON = "json"
    """The answers of the servers that we succeed: JSON or a text, and structured content."""


def default_format(settings: McpSettings, choice: ToolChoice, usual: AnswerFormat) -> AnswerFormat:
    """Returns the form of answers for a client that asks for none.

    The settings come first, then the tools that the client wants alone, and then `usual`.
    """
    if settings.format != "auto":
        return answer_format(settings.format)
    if choice.alone:
        return AnswerFormat.JSON if choice.answers_as_json else AnswerFormat.COMPACT
    return usual


def answer_format(value: Any) -> AnswerFormat:
    """Returns the form of answers that a client asks for.

    Raises:
        Invalid: there is no such form.
    """
    if value == "prompt":  # Mempack's name
        return AnswerFormat.COMPACT
    try:
        return AnswerFormat(value)
    except ValueError:
        raise Invalid("format", f"must be {' or '.join(AnswerFormat)} (Mempack's prompt is compact)") from None
