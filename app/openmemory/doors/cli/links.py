"""`openmemory links`: links memories, lists and removes links."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.operations import add
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, plain
from openmemory.operations.links import link_memories, list_links, unlink_memories

links = typer.Typer(no_args_is_help=True)


def _listed(found: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["rel"] if one["direction"] == "out" else f"{one['rel']} (from it)", one["id"],
         local_time(one["created_at"]), one["memory"])
        for one in found["links"]
    ]  # fmt: skip
    table = Table(["relation", "memory", "linked", "text"], rows, wide="text")
    return CommandAnswer(found, table, notes=[] if rows else ["It has no links."])


def _linked(made: Any, given: dict[str, Any]) -> CommandAnswer:
    said = "linked" if made["created"] else "linked already"
    return CommandAnswer(made, f"{made['from_id']} {plain(given['rel'])} {made['to_id']}: {said}.")


add(links, link_memories, _linked)
add(links, list_links, _listed)
add(links, unlink_memories, lambda gone, _: CommandAnswer(gone, "The link is gone."))
