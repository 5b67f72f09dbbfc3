"""`openmemory erase`: permanently removes memories or a whole user."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.output import CommandAnswer, confirm, memories
from openmemory.errors import Invalid


@connected
async def erase(
    client: Client,
    memory: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A memory of the user, by its id or its first characters; may be repeated."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="The user. Without --memory, everything of this user is erased.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> CommandAnswer:
    """Permanently erase memories or a user.

    Texts, history, logs and vectors are erased.
    """
    if memory:
        confirm(f"Erase {memories(len(memory))} of {await client.user(user)}?", yes)
        body = {"user_id": user, "memory_ids": memory}
        answer = await client.call("POST", "/api/v1/memories/actions/erase", body=body)
    elif user is not None:
        confirm(f"Erase {user} with all memories, apps, rules and logs?", yes)
        path = f"/api/v1/users/{path_part(user)}"
        answer = await client.call("DELETE", path, params={"confirm": user}, patient=True)
    else:
        raise Invalid("erase", "needs --memory ID for a memory, or --user NAME for everything of a user")
    return CommandAnswer(answer, answer["message"])
