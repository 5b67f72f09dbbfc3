"""`openmemory categories`: lists and describes categories, and lets the service assign them to memories."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, User

categories = typer.Typer(help="What memories are filed under.", no_args_is_help=True)

_CATEGORIES = "/api/v1/categories"
_PATH = f"{_CATEGORIES}/assign"
_FIRST_LOOK, _LOOK_EVERY = 0.1, 1.0
"""Seconds until the first check of how many memories wait, and between later checks."""


@categories.command("list")
@connected
async def list_categories(client: Client, user: User = None, json: Json = False) -> None:
    """List the categories of active and paused memories, and those that the user describes, by name."""
    from openmemory.cli.output import as_json, table

    params = {"user_id": client.user(user)}
    filed = await client.call("GET", "/api/v1/memories/categories", params=params)
    described = await client.call("GET", _CATEGORIES, params=params)
    found = _together(filed["categories"], described["categories"])
    if json:
        as_json({"categories": found, "total": len(found)})
        return
    table(
        ["name", "description", "described by"],
        [(category["name"], category["description"] or "", category["described_by"] or "") for category in found],
        wide="description",
    )


def _together(filed: list[dict[str, Any]], described: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The categories in use and those that the user describes, with the description that applies to the user."""
    counts = {category["name"]: category for category in described}
    found = {category["name"]: category | {"described_by": None} for category in filed}
    for name, category in counts.items():
        if name in found or category["described_by"] == "user":
            found[name] = found.get(name, {}) | category
    return [found[name] for name in sorted(found)]


@categories.command()
@connected
async def describe(
    client: Client,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The category: a new one, or one of OpenMemory's.")],
    description: Annotated[str, typer.Argument(metavar="TEXT", help="What its memories are about.")],
    user: User = None,
    json: Json = False,
) -> None:
    """Say what a category is about: the service then files under it what no client has filed, old memories too."""
    from openmemory.cli.output import as_json

    params = {"user_id": client.user(user)}
    made = await client.call("PUT", _path(name), params=params, body={"description": description})
    if json:
        as_json(made)
    else:
        print(f"{made['name']}: {made['description']}")


@categories.command()
@connected
async def forget(
    client: Client,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The category.")],
    user: User = None,
    json: Json = False,
) -> None:
    """Take the description of a category away; what clients filed under it stays there."""
    from openmemory.cli.output import as_json

    await client.call("DELETE", _path(name), params={"user_id": client.user(user)})
    if json:
        as_json({"forgotten": name})
    else:
        print(f"Forgot what {name} is about.")


def _path(name: str) -> str:
    from urllib.parse import quote

    # A name of only dots would lead to another path.
    return f"{_CATEGORIES}/{quote(name, safe='').replace('.', '%2E')}"


@categories.command()
@connected
async def assign(
    client: Client,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Also what the service has looked at before; what clients filed stays.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be filed where, newest first, and how sure that is.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=500, help="With --dry-run: memories at most.")] = 100,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait until all are filed.")] = 600,
    user: User = None,
    json: Json = False,
) -> None:
    """Have the service file memories that have no category, and wait until it is done."""
    import asyncio

    from openmemory.cli.output import as_json

    name = client.user(user)
    if dry_run:
        params = {"user_id": name, "again": again, "limit": limit}
        _tell(await client.call("GET", f"{_PATH}/preview", params=params), json=json)
        return
    begun: dict[str, Any] = await client.call("POST", _PATH, body={"user_id": name, "again": again})
    state, until, pause = begun, time.monotonic() + wait, _FIRST_LOOK
    while state["waiting"] and time.monotonic() < until:
        if sys.stderr.isatty():
            print(f"\r{state['waiting']:,} memories wait ", end="", file=sys.stderr, flush=True)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LOOK_EVERY)
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


def _tell(found: dict[str, Any], *, json: bool) -> None:
    from openmemory.cli.output import as_json, note, table

    if json:
        as_json(found)
        return
    table(
        ["id", "would be", "is", "memory"],
        [
            (item["memory_id"], _named(item), ", ".join(item["now"]), " ".join(item["memory"].split())[:120])
            for item in found["items"]
        ],
        wide="memory",
    )
    note(f"{len(found['items']):,} of {found['total']:,} memories; nothing was filed.")


def _named(item: dict[str, Any]) -> str:
    if not item["ready"]:
        return "(no vector yet)"
    return ", ".join(f"{each['name']} {each['confidence']:.2f}" for each in item["categories"])
