"""`openmemory audit`: shows the audit log."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.output import CommandAnswer, Table, local_time


@connected
async def audit(
    client: Client,
    *,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only events about this user; default: all users.")
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option(metavar="EVENT", help="Only this event, such as memory.search; may be repeated.")
    ] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only refused requests.")] = False,
    hours: Annotated[int | None, typer.Option(metavar="N", min=1, help="Only the last N hours.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="The maximum number of events.")] = 50,
) -> CommandAnswer:
    """Show who did what, when and from which address, newest first."""
    since = None if hours is None else int(time.time()) - hours * 3600
    params = {"user_id": user, "event": event or None, "denied": denied, "since": since, "limit": limit}
    found = await client.call("GET", "/api/v1/audit", params=params)
    rows = [
        (
            local_time(one["at"]),
            one["event"],
            one["result"],
            one["principal_name"],
            f"{one['address'] or ''} {one['door']}".strip(),
            one["user_name"],
            one["app_name"],
            _what(one["count"], one["objects"], one["detail"]),
        )
        for one in found["events"]
    ]
    return CommandAnswer(
        found, Table(["when", "event", "result", "who", "from", "user", "app", "what"], rows, wide="what")
    )


def _what(count: int, objects: list[str] | None, detail: dict[str, object] | None) -> str:
    named = ", ".join(objects[:3]) + (f" and {count - 3} more" if count > 3 else "") if objects else ""
    details = ", ".join(f"{name} {value}" for name, value in (detail or {}).items())
    return "; ".join(part for part in (named, details) if part)
