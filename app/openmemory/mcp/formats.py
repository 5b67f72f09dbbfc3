"""The toolsets that a client can ask for, and the forms of answers."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from openmemory.config.settings import McpSettings
from openmemory.errors import Invalid

TOOLSETS = frozenset({"admin", "context", "documents", "files", "notes", "projects", "review", "sessions", "threads"})
"""The toolsets that are offered only on request."""

ALIASES = {"devmemory": ("files", "projects", "sessions"), "mempack": ("context", "notes")}
"""Other memory servers, with the toolsets whose tools have the names and arguments of theirs.

A client that asks for one of them gets their answers too, unless it asks for another form.
"""


class AnswerFormat(StrEnum):
    """The form of a tool's answer."""

    COMPACT = "compact"
    """Lines of text that cost few tokens."""
    JSON = "json"
    """The answers of the servers that we succeed: JSON or a text, and structured content."""


def named_toolsets(settings: McpSettings, named: str | None) -> list[str]:
    """Returns the toolsets that a client names, separated by commas; those of the settings if it names none."""
    return [*settings.toolsets] if named is None else [each.strip() for each in named.split(",") if each.strip()]


def default_format(settings: McpSettings, toolsets: Iterable[str], usual: AnswerFormat) -> AnswerFormat:
    """Returns the form of answers for a client that asks for none: that of the settings, or else JSON with the toolsets
    of another server, or else `usual`."""
    if settings.format != "auto":
        return answer_format(settings.format)
    return usual if ALIASES.keys().isdisjoint(toolsets) else AnswerFormat.JSON


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
        raise Invalid("format", f"must be {' or '.join(AnswerFormat)}") from None
