"""`openmemory search`: finds memories by meaning and by words."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import Client, connected
from app.cli.options import Json, Namespace, User


@connected
async def search(
    client: Client,
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    user: User = None,
    app: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what this app wrote.", show_default=False)
    ] = None,
    namespace: Namespace = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Results at most.")] = 10,
    json: Json = False,
) -> None:
    """Find memories by meaning and by words, the best first."""
    from app.cli.output import as_json, local_time, note, table

    owner = client.user(user)
    body = {
        "user_id": owner,
        "query": query,
        "limit": limit,
        "namespace": namespace,
        "app_ids": None if app is None else [await client.app_id(owner, app)],
    }
    answer = await client.call("POST", "/api/v1/memories/search", body={k: v for k, v in body.items() if v is not None})
    if json:
        as_json(answer)
        return
    table(
        ["score", "id", "created", "app", "memory"],
        [
            (f"{hit['score']:.2f}", hit["id"], local_time(hit["created_at"]), hit["app_name"], hit["memory"])
            for hit in answer["results"]
        ],
        wide="memory",
    )
    if answer["note"]:
        note(answer["note"])
    elif not answer["results"]:
        note("Nothing found.")
