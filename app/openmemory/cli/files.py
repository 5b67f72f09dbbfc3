"""`openmemory files`: lists and searches the files that `openmemory ingest` has kept."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import AsApp, Namespace, PageNumber, Rows, User
from openmemory.cli.output import CommandAnswer, Table, local_time, plain

files = typer.Typer(help="List and search the files that `openmemory ingest` has kept.", no_args_is_help=True)

Below = Annotated[str | None, typer.Option("--path", metavar="PATH", help="Only files whose path begins so.")]


@files.command("list")
@connected
async def list_files(
    client: Client,
    *,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    path: Below = None,
    limit: Rows = 50,
    page: PageNumber = 1,
) -> CommandAnswer:
    """List files, by path."""
    params = {"user_id": user, "app": app, "namespace": namespace, "path": path, "size": limit, "page": page}
    found = await client.call("GET", "/api/v1/files", params=params)
    rows = [
        (one["path"], one["language"] or "", one["bytes"], one["passages"], one["namespace"], one["app_name"])
        for one in found["items"]
    ]
    table = Table(["path", "language", "bytes", "passages", "namespace", "app"], rows, wide="path")
    notes = [f"Page {page}; {found['total']} in all."] if len(rows) < found["total"] else []
    return CommandAnswer(found, table, notes=notes if found["total"] else ["There are no files."])


@files.command()
@connected
async def search(
    client: Client,
    *,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The text to search for.")],
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    path: Below = None,
    language: Annotated[str | None, typer.Option(metavar="NAME", help="Only in this language, such as python.")] = None,
    symbol: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only code that defines this name, such as Store.get.")
    ] = None,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find passages of files by meaning and by words, best match first."""
    body = {
        "user_id": user, "app": app, "query": query, "limit": limit, "namespace": namespace, "path": path,
        "language": language, "symbol": symbol, "corpus": "passages", "kinds": ["text", "code"],
    }  # fmt: skip
    found = (await client.call("POST", "/api/v1/memories/search", body=body))["passages"]
    rows = [
        (
            f"{hit['score']:.2f}",
            f"{plain(hit['path'])}:{hit['first_line']}",
            local_time(hit["created_at"]),
            f"{hit['heading']}: {hit['content']}" if hit["heading"] else hit["content"],
        )
        for hit in found["results"]
    ]
    table = Table(["score", "where", "read", "passage"], rows, wide="passage")
    return CommandAnswer(found, table, notes=[found["note"]] if found["note"] else [])
