"""`openmemory change`: changes many memories at once."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.client import Client
from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, memories
from openmemory.operations.bulk import change_memories


async def _question(_: Client, given: dict[str, Any]) -> str | None:
    if given["to"] == "erased":
        return "Erase these memories for good?"
    return "Change all memories that match?" if given["everything"] else None


def _changed(done: Any, given: dict[str, Any]) -> CommandAnswer:
    notes = [f"Undo: openmemory undo {done['action']}"] if done["action"] else []
    verb = "erased" if given["to"] == "erased" else "changed"
    return CommandAnswer(done, f"{memories(done['changed'])} {verb}.", notes=notes)


change = command(change_memories, _changed, _question)
