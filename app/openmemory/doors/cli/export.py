"""`openmemory export`: every memory of a user, as JSON Lines or as an archive."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import User
from openmemory.errors import Invalid

_STATES = "active,paused,archived"
_SUFFIX = ".zip"


@connected
async def export(
    client: Client,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="The file to write; .zip makes an archive, - is standard output.")
    ] = "-",
    user: User = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATES",
            help=f"active, paused, archived, deleted, separated by commas; or all. Default: {_STATES}.",
        ),
    ] = None,
    vectors: Annotated[
        bool | None,
        typer.Option(
            "--vectors/--no-vectors",
            help="In an archive: include the vectors, so that an import need not compute them. Default: yes.",
        ),
    ] = None,
) -> None:
    """Write all memories of a user to a file.

    The file appears only when it is complete. FILE.zip is an archive with history, logs, rules and apps, for
    `openmemory import openmemory`. Any other file is JSON Lines with the memories only, for `openmemory import`.
    """
    from openmemory.doors.cli.exporting import export_archive, export_lines
    from openmemory.doors.cli.jsonl import STATES

    if file.lower().endswith(_SUFFIX):
        if state is not None:
            raise Invalid("--state", "is for JSON Lines; an archive holds memories in every state")
        await export_archive(client, file, user=await client.user(user), vectors=vectors is not False)
        return
    if vectors is not None:
        raise Invalid("--vectors", f"is for archives, whose names end in {_SUFFIX}")
    states = STATES if state == "all" else tuple(part.strip() for part in (state or _STATES).split(","))
    if unknown := [part for part in states if part not in STATES]:
        raise Invalid("--state", f"{unknown[0]!r} must be one of {', '.join(STATES)}, or all")
    await export_lines(client, file, user=await client.user(user), states=states)
