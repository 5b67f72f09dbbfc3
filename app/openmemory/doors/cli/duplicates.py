"""`openmemory duplicates`: lists memories that say nearly the same, and keeps one or both."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, format_decision, local_time
from openmemory.operations.tidying import decide_duplicate, list_duplicates

duplicates = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (name, one[name]["id"], local_time(one[name]["created_at"]), one[name]["content"])
        for one in answer["items"]
        for name in ("newer", "older")
    ]
    notes = [answer["note"]] if answer["note"] else [] if rows else ["None of these memories say nearly the same."]
    notes += [f"Older memories: --after {answer['next']}"] if answer["next"] else []
    table = Table(["which", "memory", "created", "text"], rows, wide="text")
    return CommandAnswer(answer, table, notes=notes)


add(duplicates, list_duplicates, _format_list)
add(duplicates, decide_duplicate, format_decision)
