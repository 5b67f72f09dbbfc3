"""`openmemory sync`: synchronizes the vector index with PostgreSQL now."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json
from openmemory.cli.options import User as SomeUser
from openmemory.errors import ConflictError, Unavailable

_LOOK = 0.5
"""Seconds between two progress checks."""


@connected
async def sync(
    client: Client,
    user: SomeUser = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what differs.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Write every vector anew.")] = False,
    json: Json = False,
) -> None:
    """Make the vector index equal to PostgreSQL now."""
    import asyncio

    from openmemory.cli.output import as_json, counting

    params = {"user_id": user, "dry_run": dry_run, "full": full}
    with counting("memories compared") as progress:
        while True:
            work = asyncio.create_task(client.call("POST", "/api/v1/sync", params=params, patient=True))
            while not (await asyncio.wait([work], timeout=_LOOK))[0]:
                progress(*await _progress(client))
            try:
                answer = await work
                break
            except ConflictError as refused:
                if refused.code != "sync_running":
                    raise
            # The service already runs a sync, for example at startup. This one runs after it.
            await asyncio.sleep(_LOOK)
            progress(*await _progress(client))
    done = answer["statistics"]
    if json:
        as_json(answer)
    else:
        would = "would be " if dry_run else ""
        print(
            f"{done['total_memories']} memories: {done['memories_synced']} {would}written, "
            f"{done['deleted']} {would}removed, "
            f"{done['embedded']} embedded, {done['unchanged']} unchanged, {done['errors']} failed, "
            f"in {done['seconds']:.2f} s."
        )
    if done["errors"]:
        raise typer.Exit(1)


async def _progress(client: Client) -> tuple[int, int | None]:
    """The number of memories that the current run has compared, and the total. The run may not be listed yet."""
    try:
        runs = (await client.call("GET", "/api/v1/sync/runs", params={"limit": 5}))["runs"]
    except Unavailable:  # the progress bar is not essential
        return 0, None
    for run in runs:
        if run["status"] == "running" and run["trigger"] != "rebuild":
            return run["statistics"]["total_memories"], run["expected"]
    return 0, None
