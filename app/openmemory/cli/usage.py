"""`openmemory usage`: shows the usage of the language model."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, User

_COLUMNS = ("calls", "prompt_tokens", "completion_tokens", "seconds", "done", "failed", "undone")


@connected
async def usage(
    client: Client,
    *,
    user: User = None,
    first: Annotated[
        str | None,
        typer.Option("--from", metavar="DAY", help="The first day (UTC); default: 29 days before.", show_default=False),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="The last day (UTC); default: today.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show what making memories of texts took of the language model, by day and app."""
    from openmemory.cli.output import as_json, note, table

    params = {"user_id": client.user(user), "from": first, "to": last}
    found = await client.call("GET", "/api/v1/captures/usage", params=params)
    if json:
        as_json(found)
        return
    table(
        ["day", "app", *(name.replace("_", " ") for name in _COLUMNS)],
        [(row["day"], row["app_name"], *_shown(row)) for row in found["days"]],
        wide="app",
    )
    total = found["total"]
    note(
        f"{found['from']} to {found['to']}: calls {total['calls']:,}, prompt tokens {total['prompt_tokens']:,},"
        f" completion tokens {total['completion_tokens']:,}, seconds {total['seconds']:,.1f};"
        f" captures that wait {found['waiting']:,}"
    )


def _shown(row: dict[str, float]) -> list[str]:
    return [f"{row[name]:.1f}" if name == "seconds" else str(row[name]) for name in _COLUMNS]
