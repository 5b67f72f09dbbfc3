"""`openmemory captures`: lists the texts that the language model was asked about, and undoes what it made of them."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, plain, plain_lines
from openmemory.operations.captures import get_capture, list_captures, undo_capture

captures = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["capture_id"], local_time(one["created_at"]), one["app_name"], one["status"], len(one["results"]),
         " ".join(_input_lines(one)))
        for one in answer["items"]
    ]  # fmt: skip
    table = Table(["id", "sent", "app", "status", "changes", "text"], rows, wide="text")
    return page_answer(answer, table, arguments["page"], "There are no captures.")


def _input_lines(capture: dict[str, Any]) -> list[str]:
    """The text that was sent, or the messages of the conversation."""
    content = capture["input"]
    return [f"{turn['role']}: {turn['content']}" for turn in content.get("messages") or ()] or [
        content.get("text") or ""
    ]


def _format_capture(one: Any, _: dict[str, Any]) -> CommandAnswer:
    lines = [f"{plain(one['app_name'])}, {local_time(one['created_at'])}: {one['status']}"]
    lines += ["", *(line for text in _input_lines(one) for line in plain_lines(text))]
    changes = [f"{each['event']} {each['id']} {plain(each['memory'])}" for each in one["results"]]
    rejections = [f"not remembered ({each['reason']}): {plain(each['memory'])}" for each in one["refused"]]
    lines += ["", *changes, *rejections] if changes or rejections else []
    return CommandAnswer(one, *lines, notes=[plain(one["error"])] if one["error"] else [])


add(captures, list_captures, _format_list)
add(captures, get_capture, _format_capture)
add(captures, undo_capture, lambda one, _: CommandAnswer(one, f"Undone: {one['capture_id']}."))
