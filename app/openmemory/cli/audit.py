"""`openmemory audit`: who did what, from where and when."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json


@connected
async def audit(
    client: Client,
    *,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What was done with this user's memories; default: all.", show_default=False),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="EVENT", help="Such as memory.search; may be repeated.", show_default=False),
    ] = None,
    denied: Annotated[bool, typer.Option("--denied", help="Only what was refused.")] = False,
    hours: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the last N hours.", show_default=False)
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="How many at most.")] = 50,
    json: Json = False,
) -> None:
    """Show who did what, from where and when, newest first."""
    import time

    from openmemory.cli.output import as_json, local_time, table

    since = None if hours is None else int(time.time()) - hours * 3600
    params = {"user_id": user, "event": event or None, "denied": denied, "since": since, "limit": limit}
    found = await client.call("GET", "/api/v1/audit", params=params)
    if json:
        as_json(found)
        return
    table(
        ["when", "event", "result", "who", "from", "user", "app", "what"],
        [
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
        ],
        wide="what",
    )


def _what(count: int, objects: list[str] | None, detail: dict[str, object] | None) -> str:
    named = ", ".join(objects[:3]) + (f" and {count - 3} more" if count > 3 else "") if objects else ""
    told = ", ".join(f"{name} {value}" for name, value in (detail or {}).items())
    return "; ".join(part for part in (named, told) if part)
