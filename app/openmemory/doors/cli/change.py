"""`openmemory change`: changes many memories at once."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.client import Client
from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, memories
from openmemory.operations.bulk import change_memories


async def _question(_: Client, arguments: dict[str, Any]) -> str | None:
    if arguments["to"] == "erased":
        return "Erase these memories for good?"
    return "Change all memories that match?" if arguments["everything"] else None


def _format_change(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    notes = [f"Undo: openmemory undo {answer['action']}"] if answer["action"] else []
    verb = "erased" if arguments["to"] == "erased" else "changed"
    return CommandAnswer(answer, f"{memories(answer['changed'])} {verb}.", notes=notes)


change = command(change_memories, _format_change, _question)
