"""`openmemory apps`: lists, pauses and resumes the apps of a user."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table

apps = typer.Typer(help="List, pause and resume the apps of a user.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="APP", help="The app's name.")]


@apps.command("list")
@connected
async def list_apps(client: Client, user: User = None) -> CommandAnswer:
    """List the user's apps."""
    entries = await client.apps(user)
    rows = [
        (app["name"], _state(app["is_active"]), app["total_memories_created"], app["total_memories_accessed"])
        for app in entries
    ]
    return CommandAnswer(entries, Table(["app", "state", "written", "read"], rows, wide="app"))


@apps.command()
@connected
async def pause(client: Client, name: Name, user: User = None) -> CommandAnswer:
    """Pause an app: it can neither read nor write until it is resumed."""
    return await _switch(client, user, name, active=False)


@apps.command()
@connected
async def resume(client: Client, name: Name, user: User = None) -> CommandAnswer:
    """Let a paused app read and write again."""
    return await _switch(client, user, name, active=True)


async def _switch(client: Client, user: str | None, name: str, *, active: bool) -> CommandAnswer:
    id_ = await client.app_id(user, name)
    await client.call("PUT", f"/api/v1/apps/{id_}", params={"is_active": active, "user_id": user})
    return CommandAnswer({"id": id_, "name": name, "is_active": active}, f"{name} is {_state(active)}.")


def _state(active: bool) -> str:
    return "active" if active else "paused"
