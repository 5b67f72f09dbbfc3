"""`openmemory sources`: lists conversations, sessions, files and documents together."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from openmemory.cli import scope
from openmemory.cli.client import Client, connected
from openmemory.cli.options import AllProjects, AsApp, Namespace, PageNumber, Rows, User
from openmemory.cli.output import CommandAnswer, Table, local_time, page_answer


class Type(StrEnum):
    """The kinds of sources. `sources.schemas` has the same, and takes longer to import."""

    CONVERSATION = "conversation"
    SESSION = "session"
    FILE = "file"
    DOCUMENT = "document"


@connected
async def sources(
    client: Client,
    *,
    kind: Annotated[list[Type] | None, typer.Option(help="Only this kind; may be repeated.")] = None,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    limit: Rows = 50,
    page: PageNumber = 1,
) -> CommandAnswer:
    """List the conversations, sessions, files and documents that are kept, the last changed first."""
    params = {
        "user_id": user, "app": app, "kind": [one.value for one in kind or ()], "size": limit, "page": page,
        "namespace": scope.read(namespace, all_projects=all_projects),
    }  # fmt: skip
    found = await client.call("GET", "/api/v1/sources", params=params)
    rows = [
        (local_time(one["updated_at"]), one["kind"], one["namespace"], one["app_name"], one["passages"],
         f"{one['name']}: {one['title']}" if one["title"] else one["name"])
        for one in found["items"]
    ]  # fmt: skip
    table = Table(["changed", "kind", "namespace", "app", "passages", "name"], rows, wide="name")
    return page_answer(found, table, page, "Nothing is kept yet.")
