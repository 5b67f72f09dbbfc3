"""`openmemory sync`: makes the vector index equal to PostgreSQL now."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import Client, connected
from app.cli.options import Json
from app.cli.options import User as SomeUser


@connected
async def sync(
    client: Client,
    user: SomeUser = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what differs.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Write every vector anew.")] = False,
    json: Json = False,
) -> None:
    """Make the vector index equal to PostgreSQL now."""
    from app.cli.output import as_json, working

    params = {"user_id": user, "dry_run": dry_run, "full": full}
    with working("Comparing PostgreSQL and Qdrant"):
        answer = await client.call("POST", "/api/v1/sync", params=params, patient=True)
    done = answer["statistics"]
    if json:
        as_json(answer)
    else:
        verb = "would be written or removed" if dry_run else "written"
        print(
            f"{done['total_memories']} memories: {done['memories_synced']} {verb}, {done['deleted']} removed, "
            f"{done['embedded']} embedded, {done['unchanged']} unchanged, {done['errors']} failed, "
            f"in {done['seconds']:.2f} s."
        )
    if done["errors"]:
        raise typer.Exit(1)
