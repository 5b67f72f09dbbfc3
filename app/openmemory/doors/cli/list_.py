"""`openmemory list`: lists the memories of a user, newest first."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import (
    AllProjects,
    Category,
    Kind,
    Namespace,
    OnlyApp,
    PageNumber,
    PageSize,
    Since,
    Thread,
    Until,
    User,
)
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, memories, writer


@connected
async def list_(
    client: Client,
    *,
    user: User = None,
    app: OnlyApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    thread: Thread = None,
    kind: Kind = None,
    category: Category = None,
    contains: Annotated[str | None, typer.Option(metavar="TEXT", help="Only memories with this text.")] = None,
    since: Since = None,
    until: Until = None,
    state: Annotated[
        str, typer.Option(metavar="STATES", help="active, paused, archived, deleted, separated by commas; or all.")
    ] = "active",
    limit: PageSize = 50,
    page: PageNumber = 1,
) -> CommandAnswer:
    """List memories, newest first."""
    from openmemory.doors.cli.jsonl import STATES

    params = {
        "user_id": user,
        "app_id": None if app is None else await client.app_id(user, app),
        "namespace": scope.read(namespace, all_projects=all_projects),
        "thread_id": thread,
        "kind": kind,
        "categories": ",".join(category) if category else None,
        "search_query": contains,
        "from_date": since,
        "to_date": until,
        "state": ",".join(STATES) if state == "all" else state,
        "size": limit,
        "page": page,
    }
    answer = await client.call("GET", "/api/v1/memories", params=params)
    rows = [
        (
            item["id"], local_time(item["created_at"]), writer(item["text_app_name"], item["app_name"]), item["state"],
            item["content"],
        )
        for item in answer["items"]
    ]  # fmt: skip
    more = len(rows) < answer["total"]
    notes = [f"Page {page} of {answer['pages']}; {memories(answer['total'])} in all."] if more else []
    notes += [] if answer["total"] else ["Nothing found."]
    return CommandAnswer(answer, Table(["id", "created", "app", "state", "memory"], rows, wide="memory"), notes=notes)
