"""`openmemory categories`: what memories are filed under, and having the service file them."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from app.cli.client import Client, connected
from app.cli.options import Json, User

categories = typer.Typer(help="What memories are filed under.", no_args_is_help=True)

_PATH = "/api/v1/categories/assign"
_LOOK_EVERY = 1.0
"""Seconds between two looks at how many wait."""


@categories.command("list")
@connected
async def list_categories(client: Client, user: User = None, json: Json = False) -> None:
    """List the categories of active and paused memories, by name."""
    from app.cli.output import as_json, table

    found = await client.call("GET", "/api/v1/memories/categories", params={"user_id": client.user(user)})
    if json:
        as_json(found)
        return
    table(
        ["name", "description"],
        [(category["name"], category["description"] or "") for category in found["categories"]],
        wide="description",
    )


@categories.command()
@connected
async def assign(
    client: Client,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Also what the service has looked at before; what clients filed stays.")
    ] = False,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait until all are filed.")] = 600,
    user: User = None,
    json: Json = False,
) -> None:
    """Have the service file memories that have no category, and wait until it is done."""
    import asyncio

    from app.cli.output import as_json

    name = client.user(user)
    begun: dict[str, Any] = await client.call("POST", _PATH, body={"user_id": name, "again": again})
    state, until = begun, time.monotonic() + wait
    while state["waiting"] and time.monotonic() < until:
        if sys.stderr.isatty():
            print(f"\r{state['waiting']:,} memories wait ", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(_LOOK_EVERY)
        state = await client.call("GET", _PATH, params={"user_id": name})
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    report = {"looked_at": begun["waiting"] - min(state["waiting"], begun["waiting"]), **state}
    if json:
        as_json(report)
    else:
        print(
            f"{report['looked_at']:,} memories looked at, {state['waiting']:,} wait, {state['failed']:,} failed so far."
        )
