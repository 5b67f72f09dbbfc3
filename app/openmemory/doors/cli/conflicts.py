"""`openmemory conflicts`: lists facts that disagree, and decides which one holds."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, format_decision, local_time, page_answer
from openmemory.operations.tidying import decide_conflict, list_conflicts

conflicts = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["key"], one["namespace"], fact["value"], fact["memory"]["id"], local_time(fact["memory"]["updated_at"]))
        for one in answer["items"]
        for fact in one["facts"]
    ]
    table = Table(["key", "namespace", "value", "memory", "changed"], rows, wide="value")
    return page_answer(answer, table, arguments["page"], "No facts disagree.")


add(conflicts, list_conflicts, _format_list)
add(conflicts, decide_conflict, format_decision)
