"""`openmemory add`: stores one text."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import App, Namespace, User
from openmemory.cli.output import CommandAnswer, plain, read_stdin

_DONE = {"NONE": "Already remembered", "UPDATE": "Completed", "SUPERSEDE": "Remembered in place of an older one"}


@connected
async def add(
    client: Client,
    *,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The text to remember; - reads standard input.")],
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    thread: Annotated[str | None, typer.Option(metavar="NAME", help="The conversation that it belongs to.")] = None,
    category: Annotated[list[str] | None, typer.Option(metavar="NAME", help="A category; may be repeated.")] = None,
    ttl_days: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=36_500, help="The memory expires after N days.")
    ] = None,
) -> CommandAnswer:
    """Remember one text, word for word."""
    body = {
        "user_id": user,
        "text": read_stdin() if text == "-" else text,
        "app": app,
        "namespace": namespace,
        "thread_id": thread,
        "categories": category,
        "ttl_days": ttl_days,
        "infer": False,
    }
    added = await client.call("POST", "/api/v1/memories", body=body)
    similar = (
        f"  may say the same: {one['id']}: {plain(one['memory'])}" for one in added.get("possible_duplicates", [])
    )
    notes = [added["note"]] if added.get("note") else []
    return CommandAnswer(added, f"{_DONE.get(added['event'], 'Remembered')}: {added['id']}", *similar, notes=notes)
