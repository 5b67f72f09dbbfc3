"""`openmemory list`: lists the memories of a user, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, Namespace, User


@connected
async def list_(
    client: Client,
    *,
    user: User = None,
    app: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this app wrote.", show_default=False)
    ] = None,
    namespace: Namespace = None,
    state: Annotated[str, typer.Option(metavar="STATE", help="active, paused, archived, deleted or all.")] = "active",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, metavar="N", help="Memories of a page.")] = 50,
    page: Annotated[int, typer.Option(min=1, metavar="N", help="Which page.")] = 1,
    json: Json = False,
) -> None:
    """List memories, newest first."""
    from openmemory.cli.jsonl import STATES
    from openmemory.cli.output import as_json, local_time, note, table

    owner = client.user(user)
    params = {
        "user_id": owner,
        "app_id": None if app is None else await client.app_id(owner, app),
        "namespace": namespace,
        "state": ",".join(STATES) if state == "all" else state,
        "size": limit,
        "page": page,
    }
    answer = await client.call("GET", "/api/v1/memories", params=params)
    if json:
        as_json(answer)
        return
    table(
        ["id", "created", "app", "state", "memory"],
        [
            (item["id"], local_time(item["created_at"]), item["app_name"], item["state"], item["content"])
            for item in answer["items"]
        ],
        wide="memory",
    )
    shown = len(answer["items"])
    if shown < answer["total"]:
        note(f"Page {page} of {answer['pages']}; {answer['total']} memories in all.")
