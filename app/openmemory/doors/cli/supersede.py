"""`openmemory supersede`: archives a memory in whose place another one is true."""

from __future__ import annotations

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer
from openmemory.operations.links import supersede_memory

supersede = command(
    supersede_memory,
    lambda done, given: CommandAnswer(
        done, "1 memory superseded.", notes=[f"`openmemory restore {given['memory_id']}` makes it active again."]
    ),
)
