"""`openmemory values`: sets, shows, lists and deletes texts under a topic and a key."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, plain, plain_lines
from openmemory.operations.values import delete_value, list_values, read_value, set_value

values = typer.Typer(no_args_is_help=True)


def _name(given: dict[str, Any]) -> str:
    return f"{plain(given['topic'])}/{plain(given['key'])}"


def _was_set(done: Any, given: dict[str, Any]) -> CommandAnswer:
    event = {"ADD": "added", "UPDATE": "updated", "NONE": "unchanged"}[done["event"]]
    return CommandAnswer(done, f"{_name(given)} {event}.")


def _page(found: Any, given: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["topic"], one["key"], local_time(one["updated_at"]), one["namespace"], one["value"])
        for one in found["items"]
    ]
    table = Table(["topic", "key", "changed", "namespace", "value"], rows, wide="value")
    return page_answer(found, table, given["page"], "There are no values.")


add(values, set_value, _was_set)
add(values, read_value, lambda found, _: CommandAnswer(found, *plain_lines(found["value"])))
add(values, list_values, _page)
add(values, delete_value, lambda gone, given: CommandAnswer(gone, f"{_name(given)} deleted: {gone['id']}."))
