"""`openmemory installation`: shows whose collection is used, and says whether the database was copied or moved."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.output import CommandAnswer, plain
from openmemory.errors import Invalid


@connected
async def installation(
    client: Client,
    copied: Annotated[
        bool, typer.Option("--copied", help="This database is a copy, and the other one is still used.")
    ] = False,
    moved: Annotated[bool, typer.Option("--moved", help="This database takes the place of the other one.")] = False,
) -> CommandAnswer:
    """Show the installation that this database is, and whether its collection is another's.

    --copied gives this database an id and a collection of its own. --moved lets it take over the collections.
    """
    if copied and moved:
        raise Invalid("--copied", "cannot be used with --moved")
    if copied or moved:
        body = {"decision": "copied" if copied else "moved"}
        answer = await client.call("POST", "/api/v1/installation", body=body)
    else:
        answer = await client.call("GET", "/api/v1/installation")
    refusal = answer["refusal"]
    state = "is this installation's" if refusal is None else f"is left alone: {plain(refusal)}"
    return CommandAnswer(
        answer,
        f"Installation {answer['id']}",
        f"The collection {answer['collection'] or '(none yet)'} {state}",
        failed=refusal is not None,
    )
