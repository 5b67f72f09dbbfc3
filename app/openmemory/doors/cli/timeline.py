"""`openmemory timeline`: shows memories as they were at a time, and what changed."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time
from openmemory.operations.timeline import list_changes, list_memories_then

timeline = typer.Typer(no_args_is_help=True)


def _then(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["id"], local_time(one["created_at"]), one["app_name"], one["state"], one["content"])
        for one in answer["items"]
    ]
    return _page(answer, Table(["id", "created", "app", "state now", "memory"], rows, wide="memory"))


def _changes(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (local_time(one["at"]), one["what"], one["app_name"] or "", one["memory_id"], one["content"])
        for one in answer["items"]
    ]
    return _page(answer, Table(["when", "what", "by", "id", "memory"], rows, wide="memory"))


def _page(answer: Any, table: Table) -> CommandAnswer:
    notes = (
        [f"Earlier: --after {answer['next']}"] if answer["next"] else [] if answer["items"] else ["There is nothing."]
    )
    return CommandAnswer(answer, table, notes=notes)


add(timeline, list_memories_then, _then)
add(timeline, list_changes, _changes)
