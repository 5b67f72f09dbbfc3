"""Validation of captures: texts and conversations. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from openmemory.capture.schemas import CaptureCreate
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.memories.schemas import MemoryCreate

MAX_TURNS = 200
"""Maximum number of messages in one capture."""


def checked(new: CaptureCreate, intake: Intake, limits: LimitSettings) -> CaptureCreate:
    """The capture, validated by the same rules as every memory. Secrets in a conversation are removed.

    Raises:
        Invalid: a field cannot be used, or the text holds a secret.
    """
    if not new.messages:
        return replace(new, like=_plain(intake.created(new.like)))
    if len(new.messages) > MAX_TURNS:
        raise Invalid("messages", f"has {len(new.messages):,} entries; the limit is {MAX_TURNS}")
    for number, turn in enumerate(new.messages):
        validation.text(turn.content, f"messages[{number}].content", limits.text, "limits.text")
    validation.part("".join(turn.content for turn in new.messages), "messages", 4 * limits.text, "4 x limits.text")
    like = replace(_plain(intake.created(replace(new.like, text="conversation"))), text="")
    turns = tuple(replace(turn, content=intake.redacted(turn.content)) for turn in new.messages)
    return replace(new, like=like, messages=turns)


def _plain(like: MemoryCreate) -> MemoryCreate:
    """The fields without the results of intake, which runs again for each memory."""
    return MemoryCreate(**{name: getattr(like, name) for name in MemoryCreate.__dataclass_fields__})
