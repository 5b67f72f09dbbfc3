"""`openmemory files`: lists and searches the files that `openmemory ingest` has kept."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import AllProjects, AsApp, Namespace, Query, Rows, User, words
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, plain
from openmemory.doors.cli.passages import list_passages, under_heading
from openmemory.operations.files import list_files

files = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["path"], one["language"] or "", one["bytes"], one["passages"], one["namespace"], one["app_name"])
        for one in answer["items"]
    ]
    table = Table(["path", "language", "bytes", "passages", "namespace", "app"], rows, wide="path")
    return page_answer(answer, table, arguments["page"], "There are no files.")


add(files, list_files, _format_list)


@files.command()
@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    path: Annotated[str | None, typer.Option(metavar="PATH", help="Only files whose path begins so.")] = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="Only in this language, such as python.")] = None,
    symbol: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only code that defines this name, such as Store.get.")
    ] = None,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find passages of files by meaning and by words, best match first."""
    body = {
        "user_id": user, "app": app, "query": words(query), "limit": limit, "path": path, "language": language,
        "symbol": symbol, "kinds": ["text", "code"], "namespaces": scope.read(namespace, all_projects=all_projects),
    }  # fmt: skip
    return await list_passages(client, body, ["where", "read", "passage"], _hit)


def _hit(hit: dict[str, Any]) -> tuple[str, ...]:
    return f"{plain(hit['path'])}:{hit['first_line']}", local_time(hit["created_at"]), under_heading(hit)
