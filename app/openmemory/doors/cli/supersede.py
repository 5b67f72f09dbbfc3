"""`openmemory supersede`: archives a memory in whose place another one is true."""

from __future__ import annotations

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer
from openmemory.operations.links import supersede_memory

supersede = command(
    supersede_memory,
    lambda answer, arguments: CommandAnswer(
        answer, "1 memory superseded.", notes=[f"`openmemory restore {arguments['memory_id']}` makes it active again."]
    ),
)
