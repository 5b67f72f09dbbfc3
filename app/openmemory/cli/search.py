"""`openmemory search`: finds memories by meaning and by words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, Namespace, User
from openmemory.errors import Invalid

_COLUMNS = ("score", "id", "created", "app")
_TERMS = ("words", "meaning", "beside", "thread", "time", "recency", "late", "reranker")
_EXPLAINED = ("score", *_TERMS, "penalty", "bm25", "#", "cosine", "#")
"""Columns of an explanation: the score, the terms that add up to it, the penalty, and each arm's raw score and rank."""


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
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of", metavar="TIME", help="Answer as if asked then: an ISO date or time, of UTC.", show_default=False
        ),
    ] = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Show what each score is the sum of, what each arm said, and what the question was taken for.",
            show_default=False,
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Find memories by meaning and by words, the best first."""
    from openmemory.cli.output import as_json, note, table

    owner = client.user(user)
    body = {
        "user_id": owner,
        "query": query,
        "limit": limit,
        "namespace": namespace,
        "filter": None if filter is None else _conditions(filter),
        "app_ids": None if app is None else [await client.app_id(owner, app)],
        "as_of": as_of,
        "explain": explain or None,
    }
    answer = await client.call("POST", "/api/v1/memories/search", body={k: v for k, v in body.items() if v is not None})
    if json:
        as_json(answer)
        return
    columns, shown = (_EXPLAINED, _explained) if explain else (_COLUMNS, _found)
    table([*columns, "memory"], [(*shown(hit), hit["memory"]) for hit in answer["results"]], wide="memory")
    for line in _conflicts(answer.get("conflicts", [])):
        note(line)
    for line in _read(answer["explanation"]) if explain else ():
        note(line)
    if answer["note"]:
        note(answer["note"])
    elif not answer["results"]:
        note("Nothing found.")


def _conflicts(found: list[dict[str, Any]]) -> Iterator[str]:
    """The conflicts between results, one line each."""
    from openmemory.cli.output import local_time, plain

    for each in found:
        said = [
            plain(f"{one['value']} (@{one['app']} {local_time(one['at'])})")
            for one in (each["current"], *each["previous"])
        ]
        yield f"CONFLICT {plain(each['key'])}: current={said[0]}, previous={'; '.join(said[1:])}"


def _found(hit: dict[str, Any]) -> tuple[str, ...]:
    from openmemory.cli.output import local_time

    return f"{hit['score']:.2f}", hit["id"], local_time(hit["created_at"]), hit["app_name"]


def _explained(hit: dict[str, Any]) -> tuple[str, ...]:
    """The column values of an explanation."""
    why = hit["explanation"]
    terms = ((why[name] or {}).get("adds") for name in _TERMS)
    numbers = hit["score"], *terms, why["penalty"]
    arms = ((_number(why[arm]["score"]), str(why[arm]["rank"] or "-")) for arm in ("words", "meaning"))
    return *map(_number, numbers), *(cell for arm in arms for cell in arm)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _read(why: dict[str, Any]) -> Iterator[str]:
    """The interpretation of the query, line by line."""
    if why["embedded"] is not None:
        left_out = f" (without {', '.join(why['left_out'])})" if why["left_out"] else ""
        yield f"Embedded as: {why['embedded']}{left_out}"
    if why["dense_share"] is not None:
        yield f"Weight of meaning: {why['dense_share']['formula']}"
    if why["floor"] is not None:
        yield f"Relevance floor: cosine {why['floor']:g}"
    for time in why["times"]:
        yield f"Time: from {time['start'] or 'ever'} until {time['end'] or 'ever'}"


def _conditions(text: str) -> Any:
    """A filter parsed from JSON. The service validates it."""
    from openmemory.serialization import exact_json

    try:
        return exact_json.loads(text)
    except ValueError as error:
        raise Invalid("--filter", f"is not valid JSON: {error}") from None
