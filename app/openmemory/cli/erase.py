"""`openmemory erase`: permanently removes memories or a whole user."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json
from openmemory.errors import Invalid


@connected
async def erase(
    client: Client,
    memory: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A memory; may be repeated. --user says whose.", show_default=False),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Without --memory: the user with all that is theirs.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Remove memories, or a user with all memories, for good: texts, history, log and vectors."""
    from urllib.parse import quote

    from openmemory.cli.output import as_json, confirm

    if memory:
        confirm(f"Erase {len(memory)} memories of {client.user(user)}?", yes)
        body = {"user_id": client.user(user), "memory_ids": memory}
        answer = await client.call("POST", "/api/v1/memories/actions/erase", body=body)
    elif user is not None:
        confirm(f"Erase {user} with all memories, apps, rules and logs?", yes)
        path = f"/api/v1/users/{quote(user, safe='')}"
        answer = await client.call("DELETE", path, params={"confirm": user}, patient=True)
    else:
        raise Invalid("erase", "needs --memory ID, or --user NAME for a user with all that is theirs")
    if json:
        as_json(answer)
    else:
        print(answer["message"])
