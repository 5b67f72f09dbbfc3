"""`openmemory context`: packs what an assistant should know for a task, within a budget of tokens."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.checkout import Checkout
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import App, Namespace, User, words
from openmemory.doors.cli.output import CommandAnswer, Table, plain, plain_lines
from openmemory.identity.names import PERSON

_ANCHORS = "/api/v1/anchors"


async def compare_commits(client: Client, *, user: str | None, app: str | None, namespace: str) -> str | None:
    """Compares the commits of a project's memories with the checkout of this folder, and returns its commit.

    None without a repository, and if this folder is of another project.
    """
    if scope.here(None) != namespace or (head := (checkout := Checkout(".")).head()) is None:
        return None
    params = {"user_id": user, "app": app, "namespace": namespace, "head": head}
    answer = await client.call("GET", _ANCHORS, params=params)
    unknown = [one["commit"] for one in answer["anchors"] if one["reachable"] is None]
    reachable, orphaned = checkout.compare(head, unknown) if unknown else ([], [])
    if reachable or orphaned:
        await client.call("POST", _ANCHORS, body=params | {"reachable": reachable, "orphaned": orphaned})
    return head


@connected
async def context(
    client: Client,
    *,
    query: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="The question or the task; it needs no quotes.")
    ] = None,
    about: Annotated[str | None, typer.Option(metavar="ID", help="Start from this memory.")] = None,
    budget: Annotated[int, typer.Option(metavar="N", min=0, max=10_000, help="The largest size in tokens.")] = 2_500,
    index: Annotated[bool, typer.Option("--index", help="A line of each item, without its text.")] = False,
    orphans: Annotated[
        bool, typer.Option("--include-orphans", help="Memories of commits that are not in the history come too.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each item is in the pack or not.")] = False,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Pack the state of a project, and the memories, links and passages that fit a task.

    The namespace is that of the folder, if none is given. In a Git repository, memories of commits that are not in the
    history of HEAD are left out.
    """
    [where, *_] = scope.read(namespace) or [PERSON]
    head = await compare_commits(client, user=user, app=app, namespace=where)
    body: dict[str, Any] = {
        "user_id": user, "app": app, "namespace": where, "query": words(query), "about": about,
        "budget": budget, "detail": "index" if index else "full", "explain": explain,
        "head": head, "include_orphans": orphans or None,
    }  # fmt: skip
    answer = await client.call("POST", "/api/v1/context", body=body)
    size = answer["budget"]
    notes = [f"{size['used']} of {size['target']} tokens; {size['saved']} saved, {size['dropped']} left out."]
    notes += [plain(answer["note"])] if answer.get("note") else []
    if not explain:
        return CommandAnswer(answer, *plain_lines(answer["text"]), asides=notes)
    rows = [
        ("in" if one["included"] else "out", one["kind"], one["tokens"], one["full_tokens"], one["why"], one["title"])
        for one in answer["decisions"]
    ]
    table = Table(["", "kind", "tokens", "of", "why", "title"], rows, wide="title")
    return CommandAnswer(answer, table, notes=notes)
