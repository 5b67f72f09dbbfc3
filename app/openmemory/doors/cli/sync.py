"""`openmemory sync`: synchronizes the vector index with PostgreSQL now."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.output import CommandAnswer, memories, progress
from openmemory.errors import ConflictError, Unavailable

_LOOK = 0.5
"""Seconds between two progress checks."""


@connected
async def sync(
    client: Client,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user; default: all users.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the differences.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Write every vector, not only those that differ.")] = False,
) -> CommandAnswer:
    """Synchronize the vector index with PostgreSQL now. The exit code is 1 if a vector could not be written."""
    import asyncio

    params = {"user_id": user, "dry_run": dry_run, "full": full}
    with progress("memories compared") as show:
        while True:
            work = asyncio.create_task(client.call("POST", "/api/v1/sync", params=params, patient=True))
            while not (await asyncio.wait([work], timeout=_LOOK))[0]:
                show(*await _progress(client))
            try:
                answer = await work
                break
            except ConflictError as error:
                if error.code != "sync_running":
                    raise
            # The service already runs a sync, for example at startup. This one runs after it.
            await asyncio.sleep(_LOOK)
            show(*await _progress(client))
    statistics = answer["statistics"]
    would = "would be " if dry_run else ""
    line = (
        f"{memories(statistics['total_memories'])}: {statistics['memories_synced']} {would}written, "
        f"{statistics['deleted']} {would}removed, "
        f"{statistics['embedded']} embedded, {statistics['unchanged']} unchanged, {statistics['errors']} failed, "
        f"in {statistics['seconds']:.2f} s."
    )
    return CommandAnswer(answer, line, failed=bool(statistics["errors"]))


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
