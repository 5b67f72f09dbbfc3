"""`openmemory undo`: undoes a decision, or a change of many memories."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, memories
from openmemory.operations.tidying import undo_change


def _format_undo(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    notes = [f"{memories(answer['kept'])} stay, because they were changed since."] if answer["kept"] else []
    return CommandAnswer(answer, f"{memories(answer['restored'])} restored.", notes=notes)


undo = command(undo_change, _format_undo)
