"""`openmemory undo`: undoes a decision, or a change of many memories."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, memories
from openmemory.operations.tidying import undo_change


def _undone(done: Any, _: dict[str, Any]) -> CommandAnswer:
    kept = [f"{memories(done['kept'])} stay, because they were changed since."] if done["kept"] else []
    return CommandAnswer(done, f"{memories(done['restored'])} restored.", notes=kept)


undo = command(undo_change, _undone)
