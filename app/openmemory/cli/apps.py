"""`openmemory apps`: the assistants that write for a user."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, User

apps = typer.Typer(help="The apps that read and write for a user.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="APP", help="The app's name.")]


@apps.command("list")
@connected
async def list_apps(client: Client, user: User = None, json: Json = False) -> None:
    """List the user's apps."""
    from openmemory.cli.output import as_json, table

    found = await client.apps(client.user(user))
    if json:
        as_json(found)
        return
    table(
        ["app", "state", "written", "read"],
        [
            (
                app["name"],
                "active" if app["is_active"] else "paused",
                app["total_memories_created"],
                app["total_memories_accessed"],
            )
            for app in found
        ],
        wide="app",
    )


@apps.command()
@connected
async def pause(client: Client, name: Name, user: User = None, json: Json = False) -> None:
    """Pause an app: it reads and writes nothing until it is resumed."""
    await _switch(client, user, name, active=False, json=json)


@apps.command()
@connected
async def resume(client: Client, name: Name, user: User = None, json: Json = False) -> None:
    """Let a paused app read and write again."""
    await _switch(client, user, name, active=True, json=json)


async def _switch(client: Client, user: str | None, name: str, *, active: bool, json: bool) -> None:
    from openmemory.cli.output import as_json

    owner = client.user(user)
    id_ = await client.app_id(owner, name)
    await client.call("PUT", f"/api/v1/apps/{id_}", params={"is_active": active, "user_id": owner})
    if json:
        as_json({"id": id_, "name": name, "is_active": active})
    else:
        print(f"{name} is {'active' if active else 'paused'}.")
