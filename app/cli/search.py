"""`openmemory search`: finds memories by meaning and by words."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli.client import Client, connected
from app.cli.options import Json, Namespace, User
from app.errors import Invalid

_COLUMNS = ("score", "id", "created", "app")
_PARTS = {
    "score": "score", "words": "lexical", "meaning": "dense", "beside": "beside", "thread": "thread", "time": "time",
    "penalty": "penalty", "bm25": "bm25", "cosine": "cosine",
}  # fmt: skip
"""Columns of an explanation by the names of an answer's parts."""


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
    filter: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help='Only what meets these conditions, such as \'{"metadata.project": "webshop"}\'.',
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="Results at most.")] = 10,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what each score is the sum of.", show_default=False)
    ] = False,
    json: Json = False,
) -> None:
    """Find memories by meaning and by words, the best first."""
    from app.cli.output import as_json, note, table

    owner = client.user(user)
    body = {
        "user_id": owner,
        "query": query,
        "limit": limit,
        "namespace": namespace,
        "filter": None if filter is None else _conditions(filter),
        "app_ids": None if app is None else [await client.app_id(owner, app)],
    }
    answer = await client.call("POST", "/api/v1/memories/search", body={k: v for k, v in body.items() if v is not None})
    if json:
        as_json(answer)
        return
    columns, shown = (_PARTS, _explained) if explain else (_COLUMNS, _found)
    table([*columns, "memory"], [(*shown(hit), hit["memory"]) for hit in answer["results"]], wide="memory")
    if answer["note"]:
        note(answer["note"])
    elif not answer["results"]:
        note("Nothing found.")


def _found(hit: dict[str, Any]) -> tuple[str, ...]:
    from app.cli.output import local_time

    return f"{hit['score']:.2f}", hit["id"], local_time(hit["created_at"]), hit["app_name"]


def _explained(hit: dict[str, Any]) -> tuple[str, ...]:
    """The score, the parts that add up to it, what is taken off, and what the arms said themselves."""
    numbers = hit["score"], *(hit["parts"][part] for part in list(_PARTS.values())[1:])
    return tuple("-" if number is None else f"{number:.3f}" for number in numbers)


def _conditions(text: str) -> Any:
    """What a filter says in JSON; whether it can be used, the service tells."""
    from app import exact_json

    try:
        return exact_json.loads(text)
    except ValueError as error:
        raise Invalid("--filter", f"is not valid JSON: {error}") from None
