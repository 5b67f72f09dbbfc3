"""`openmemory add`: remembers one text."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import App, Json, Namespace, User


@connected
async def add(
    client: Client,
    *,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="What to remember; - reads standard input.")],
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    thread: Annotated[
        str | None, typer.Option(metavar="NAME", help="A conversation or work session.", show_default=False)
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A category; may be repeated.", show_default=False)
    ] = None,
    ttl_days: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=36_500, help="Days after which nobody finds it.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Remember one text, word for word."""
    from openmemory.cli.output import as_json, note, plain, read_stdin

    body = {
        "user_id": client.user(user),
        "text": read_stdin() if text == "-" else text,
        "app": app,
        "namespace": namespace,
        "thread_id": thread,
        "categories": category,
        "ttl_days": ttl_days,
        "infer": False,
    }
    added = await client.call("POST", "/api/v1/memories", body={k: v for k, v in body.items() if v is not None})
    if json:
        as_json(added)
    else:
        print(f"{_DONE.get(added['event'], 'Remembered')}: {added['id']}")
        for one in added.get("possible_duplicates", []):
            print(f"  says the same? {one['id']}: {plain(one['memory'])}")
        if added.get("note"):
            note(added["note"])


_DONE = {"NONE": "Already remembered", "UPDATE": "Completed", "SUPERSEDE": "Remembered in place of an older one"}
