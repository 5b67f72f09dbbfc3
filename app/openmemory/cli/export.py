"""`openmemory export`: every memory of a user, as JSON Lines or as an archive."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import User
from openmemory.errors import Invalid

_STATES = "active,paused,archived"


@connected
async def export(
    client: Client,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", help="Where to write; .zip makes an archive, - is standard output."),
    ] = "-",
    user: User = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATES",
            help=f"active, paused, archived, deleted, comma-separated, or all; default: {_STATES}.",
            show_default=False,
        ),
    ] = None,
    vectors: Annotated[
        bool | None,
        typer.Option(
            "--vectors/--no-vectors",
            help="In an archive: the vectors too, so that nothing has to be embedded again; default: yes.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write every memory of a user: into FILE.zip everything with its history, logs, rules and apps, else JSON Lines.

    Both are read by `openmemory import`. A file appears under its name only once it is whole.
    """
    from openmemory.cli.archiving import SUFFIX, export_archive
    from openmemory.cli.exporting import Export

    if file.lower().endswith(SUFFIX):
        if state is not None:
            raise Invalid("--state", "is for JSON Lines: an archive holds every state")
        await export_archive(client, file, user=user, vectors=vectors is not False)
        return
    if vectors is not None:
        raise Invalid("--vectors", f"is for archives, whose names end in {SUFFIX}")
    await Export(client, user=user, state=state or _STATES).file(file)
