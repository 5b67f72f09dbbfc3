"""`openmemory import`: remembers every line of a JSON Lines file."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import Client, connected
from app.cli.options import App, Json, User


@connected
async def import_(
    client: Client,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON Lines; - reads standard input.")],
    user: User = None,
    app: App = None,
    json: Json = False,
) -> None:
    """Remember every line of a file: {"text": ..., "user": ..., "app": ..., "namespace": ..., "created_at": ...}.

    Lines that name no user or app are --user's and --app's. A text that the same user, app and namespace remember
    already is not stored twice, so an import that was interrupted is simply run again. A line that cannot be taken
    is reported with its number, and the rest goes on; the exit code is then 1.
    """
    from app.cli.importing import Import
    from app.cli.output import as_json

    run = Import(client, user=user, app=app)
    try:
        await run.file(file)
    finally:
        if json:
            as_json(
                {
                    "added": run.added,
                    "already_there": run.already,
                    "deleted_left_out": run.left_out,
                    "failed": run.failed,
                }
            )
        else:
            left_out = f"{run.left_out} deleted ones left out, " if run.left_out else ""
            print(f"{run.added} added, {run.already} already there, {left_out}{run.failed} failed.")
    if run.failed:
        raise typer.Exit(1)
