"""`openmemory values`: sets, shows, lists and deletes texts under a topic and a key."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, plain, plain_lines
from openmemory.operations.values import delete_value, list_values, read_value, set_value

values = typer.Typer(no_args_is_help=True)


def _name(arguments: dict[str, Any]) -> str:
    return f"{plain(arguments['topic'])}/{plain(arguments['key'])}"


def _format_change(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    event = {"ADD": "added", "UPDATE": "updated", "NONE": "unchanged"}[answer["event"]]
    return CommandAnswer(answer, f"{_name(arguments)} {event}.")


def _page(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["topic"], one["key"], local_time(one["updated_at"]), one["namespace"], one["value"])
        for one in answer["items"]
    ]
    table = Table(["topic", "key", "changed", "namespace", "value"], rows, wide="value")
    return page_answer(answer, table, arguments["page"], "There are no values.")


add(values, set_value, _format_change)
add(values, read_value, lambda answer, _: CommandAnswer(answer, *plain_lines(answer["value"])))
add(values, list_values, _page)
add(
    values,
    delete_value,
    lambda answer, arguments: CommandAnswer(answer, f"{_name(arguments)} deleted: {answer['id']}."),
)
