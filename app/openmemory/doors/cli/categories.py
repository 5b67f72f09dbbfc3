"""`openmemory categories`: lists and describes categories, and lets the service assign them to memories."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import User, words
from openmemory.doors.cli.output import CommandAnswer, Table, memories, plain, progress
from openmemory.operations.categories import PATH, forget_category

categories = typer.Typer(no_args_is_help=True)

_PATH = f"{PATH}/assign"
_FIRST_LOOK, _LOOK_EVERY = 0.1, 1.0
"""Seconds until the first check of how many memories wait, and between later checks."""


@categories.command("list")
@connected
async def list_categories(client: Client, user: User = None) -> CommandAnswer:
    """List the categories of active and paused memories, and those that the user described, by name."""
    params = {"user_id": user}
    in_use = await client.call("GET", "/api/v1/memories/categories", params=params)
    described = await client.call("GET", PATH, params=params)
    entries = _together(in_use["categories"], described["categories"])
    rows = [(category["name"], category["description"], category["described_by"]) for category in entries]
    table = Table(["name", "description", "described by"], rows, wide="description")
    return CommandAnswer({"categories": entries, "total": len(entries)}, table)


def _together(in_use: list[dict[str, Any]], described: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The categories in use and those that the user describes, with the description that applies to the user."""
    by_name = {category["name"]: category | {"described_by": None} for category in in_use}
    for category in described:
        name = category["name"]
        if name in by_name or category["described_by"] == "user":
            by_name[name] = by_name.get(name, {}) | category
    return [by_name[name] for name in sorted(by_name)]


@categories.command()
@connected
async def describe(
    client: Client,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A new category, or a built-in one.")],
    description: Annotated[
        list[str], typer.Argument(metavar="TEXT", help="What the memories of the category are about.")
    ],
    user: User = None,
) -> CommandAnswer:
    """Describe a category.

    The service then assigns it to matching memories, old and new.
    Categories that a client assigned stay.
    """
    params = {"user_id": user}
    answer = await client.call(
        "PUT", f"{PATH}/{path_part(name)}", params=params, body={"description": words(description)}
    )
    return CommandAnswer(answer, f"{answer['name']}: {answer['description']}")


def _format_deletion(_: Any, arguments: dict[str, Any]) -> CommandAnswer:
    return CommandAnswer({"forgotten": arguments["name"]}, f"Deleted the description of {plain(arguments['name'])}.")


add(categories, forget_category, _format_deletion)


@categories.command()
@connected
async def assign(
    client: Client,
    *,
    again: Annotated[
        bool, typer.Option("--again", help="Include memories that the service has already assigned categories to.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the categories and their confidence, newest memory first.")
    ] = False,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=500, help="With --dry-run: the maximum number of memories.")
    ] = 100,
    wait: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="How long to wait for completion.")] = 600,
    user: User = None,
) -> CommandAnswer:
    """Assign categories to memories that have none, and wait until this is done."""
    import asyncio

    if dry_run:
        params = {"user_id": user, "again": again, "limit": limit}
        return _preview(await client.call("GET", f"{_PATH}/preview", params=params))
    first_state: dict[str, Any] = await client.call("POST", _PATH, body={"user_id": user, "again": again})
    state, until, pause = first_state, time.monotonic() + wait, _FIRST_LOOK
    with progress("memories checked") as show:
        while state["waiting"] and time.monotonic() < until:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LOOK_EVERY)
            state = await client.call("GET", _PATH, params={"user_id": user})
            show(max(0, first_state["waiting"] - state["waiting"]), first_state["waiting"])
    report = {"looked_at": max(0, first_state["waiting"] - state["waiting"]), **state}
    line = f"{report['looked_at']:,} memories checked, {state['waiting']:,} waiting, {state['failed']:,} failed so far."
    return CommandAnswer(report, line)


def _preview(answer: dict[str, Any]) -> CommandAnswer:
    rows = [
        (item["memory_id"], _format_categories(item), ", ".join(item["now"]), " ".join(item["memory"].split())[:120])
        for item in answer["items"]
    ]
    table = Table(["id", "would be", "is", "memory"], rows, wide="memory")
    return CommandAnswer(answer, table, notes=[f"{len(rows):,} of {memories(answer['total'])}; nothing was assigned."])


def _format_categories(item: dict[str, Any]) -> str:
    if not item["ready"]:
        return "(no vector yet)"
    return ", ".join(f"{each['name']} {each['confidence']:.2f}" for each in item["categories"])
