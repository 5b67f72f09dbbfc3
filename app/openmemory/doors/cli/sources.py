"""`openmemory sources`: lists conversations, sessions, files and documents together."""

from __future__ import annotations

from typing import Any

from openmemory.doors.cli.operations import command
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer
from openmemory.operations.sources import list_sources


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (local_time(one["updated_at"]), one["kind"], one["namespace"], one["app_name"], one["passages"],
         f"{one['name']}: {one['title']}" if one["title"] else one["name"])
        for one in answer["items"]
    ]  # fmt: skip
    table = Table(["changed", "kind", "namespace", "app", "passages", "name"], rows, wide="name")
    return page_answer(answer, table, arguments["page"], "Nothing is kept yet.")


sources = command(list_sources, _format_list)
