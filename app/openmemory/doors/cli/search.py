"""`openmemory search`: finds memories by meaning and by words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope, times
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import (
    AllProjects,
    Category,
    Kind,
    Namespace,
    OnlyApp,
    Query,
    Since,
    Thread,
    Until,
    User,
    json_of,
    words,
)
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, plain, writer

_COLUMNS = ("score", "id", "created", "app")
_PARTS = {
    "base": "base", "meaning": "dense", "words": "lexical", "tokens": "late", "thread": "beside", "text": "text",
    "time": "time", "names": "named", "recency": "recency", "reranker": "reranked",
}  # fmt: skip
_EXPLAINED = ("ranking", *_PARTS, "penalty", "bm25", "bm25 rank", "cosine", "cosine rank")
"""Columns of an explanation: the ranking, the parts of the score's logit, the penalty, and each arm's raw score and
rank."""


@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: OnlyApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    thread: Thread = None,
    kind: Kind = None,
    category: Category = None,
    since: Since = None,
    until: Until = None,
    filter: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='Only matching memories, such as \'{"metadata.project": "webshop"}\'.'),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", help="The maximum number of results.")] = 10,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", callback=times.start, help="Search what was true at this time."),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show how each score is computed and how the query was read.")
    ] = False,
) -> CommandAnswer:
    """Find memories by meaning and by words, best match first."""
    body = {
        "user_id": user,
        "query": words(query),
        "limit": limit,
        "namespaces": scope.read(namespace, all_projects=all_projects),
        "thread_id": thread,
        "kind": kind,
        "categories": category,
        "from_date": since,
        "to_date": until,
        "filter": json_of(filter, "--filter"),
        "app_ids": None if app is None else [await client.app_id(user, app)],
        "as_of": as_of,
        "explain": explain or None,
    }
    answer = await client.call("POST", "/api/v1/memories/search", body=body)
    details = _EXPLAINED if explain else ()
    rows = [(*_format_hit(hit), *(_explanation_cells(hit) if explain else ()), _text(hit)) for hit in answer["results"]]
    table = Table([*_COLUMNS, *details, "memory"], rows, wide="memory", details=details)
    notes = [
        *_conflicts(answer.get("conflicts", [])),
        *(_explain_query(answer["explanation"]) if answer.get("explanation") else ()),
    ]
    if answer["note"]:
        notes.append(answer["note"])
    elif not rows:
        notes.append("Nothing found.")
    return CommandAnswer(answer, table, notes=notes)


def _conflicts(conflicts: list[dict[str, Any]]) -> Iterator[str]:
    """The conflicts between results, one line each."""
    for each in conflicts:
        values = [
            plain(f"{one['value']} (@{one['app']} {local_time(one['at'])})")
            for one in (each["current"], *each["previous"])
        ]
        yield f"CONFLICT {plain(each['key'])}: current={values[0]}, previous={'; '.join(values[1:])}"


def _text(hit: dict[str, Any]) -> str:
    """The text of a result. If another result replaces it, that one is named first."""
    return f"[newer: {hit['newer'][:8]}] {hit['memory']}" if hit.get("newer") else str(hit["memory"])


def _format_hit(hit: dict[str, Any]) -> tuple[str, ...]:
    score = "-" if hit["score"] is None else f"{hit['score']:.2f}"
    app = writer(hit["app_name"], hit.get("added_by"))
    return score, hit["id"], local_time(hit["created_at"]), app


def _explanation_cells(hit: dict[str, Any]) -> tuple[str, ...]:
    """The column values of an explanation. A memory of an overview has none."""
    why, parts = hit.get("explanation"), hit["parts"]
    if why is None:
        return ("-",) * len(_EXPLAINED)
    numbers = parts["ranking"], *(parts.get(field) for field in _PARTS.values()), parts["penalty"]
    arms = ((_number(why[arm]["score"]), str(why[arm]["rank"] or "-")) for arm in ("words", "meaning"))
    return *map(_number, numbers), *(cell for arm in arms for cell in arm)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _explain_query(why: dict[str, Any]) -> Iterator[str]:
    """The interpretation of the query, line by line."""
    if why["embedded"] is not None:
        left_out = f" (without {', '.join(why['left_out'])})" if why["left_out"] else ""
        yield f"Embedded as: {why['embedded']}{left_out}"
    if why["floor"] is not None:
        yield f"Relevance floor: cosine {why['floor']:g}"
    for time in why["times"]:
        yield f"Time: from {time['start'] or 'ever'} until {time['end'] or 'ever'}"
