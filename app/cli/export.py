"""`openmemory export`: every memory of a user as JSON Lines."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import Client, connected
from app.cli.options import User


@connected
async def export(
    client: Client,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="Where to write; - is standard output.")] = "-",
    user: User = None,
    state: Annotated[
        str, typer.Option(metavar="STATES", help="active, paused, archived, deleted, comma-separated, or all.")
    ] = "active,paused,archived",
) -> None:
    """Write every memory of a user as JSON Lines, oldest first, as `openmemory import` reads them.

    A file appears under its name only once it is whole.
    """
    from app.cli.exporting import Export

    await Export(client, user=user, state=state).file(file)
