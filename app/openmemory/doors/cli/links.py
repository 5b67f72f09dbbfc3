"""`openmemory links`: links memories, lists and removes links."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, plain
from openmemory.operations.links import link_memories, list_links, unlink_memories

links = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["rel"] if one["direction"] == "out" else f"{one['rel']} (from it)", one["id"],
         local_time(one["created_at"]), one["memory"])
        for one in answer["links"]
    ]  # fmt: skip
    table = Table(["relation", "memory", "linked", "text"], rows, wide="text")
    return CommandAnswer(answer, table, notes=[] if rows else ["It has no links."])


def _format_link(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    status = "linked" if answer["created"] else "linked already"
    return CommandAnswer(answer, f"{answer['from_id']} {plain(arguments['rel'])} {answer['to_id']}: {status}.")


add(links, link_memories, _format_link)
add(links, list_links, _format_list)
add(links, unlink_memories, lambda answer, _: CommandAnswer(answer, "The link is gone."))
