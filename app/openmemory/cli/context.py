"""`openmemory context`: packs what an assistant should know for a task, within a budget of tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.cli import project
from openmemory.cli.client import Client, connected
from openmemory.cli.options import App, Namespace, User
from openmemory.cli.output import CommandAnswer, Table, plain, plain_lines


@connected
async def context(
    client: Client,
    *,
    query: Annotated[str | None, typer.Argument(metavar="[QUERY]", help="The question or the task.")] = None,
    about: Annotated[str | None, typer.Option(metavar="ID", help="Start from this memory.")] = None,
    budget: Annotated[int, typer.Option(metavar="N", min=0, max=10_000, help="The largest size in tokens.")] = 2_500,
    index: Annotated[bool, typer.Option("--index", help="A line of each item, without its text.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each item is in the pack or not.")] = False,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Pack the state of a project, and the memories, links and passages that fit a task.

    The namespace is that of the folder, if none is given.
    """
    body: dict[str, Any] = {
        "user_id": user, "app": app, "namespace": project.here(namespace), "query": query, "about": about,
        "budget": budget, "detail": "index" if index else "full", "explain": explain,
    }  # fmt: skip
    found = await client.call("POST", "/api/v1/context", body=body)
    size = found["budget"]
    notes = [f"{size['used']} of {size['target']} tokens; {size['saved']} saved, {size['dropped']} left out."]
    notes += [plain(found["note"])] if found.get("note") else []
    if not explain:
        return CommandAnswer(found, *plain_lines(found["text"]), notes=notes)
    rows = [
        ("in" if one["included"] else "out", one["kind"], one["tokens"], one["full_tokens"], one["why"], one["title"])
        for one in found["decisions"]
    ]
    table = Table(["", "kind", "tokens", "of", "why", "title"], rows, wide="title")
    return CommandAnswer(found, table, notes=notes)
