"""`openmemory usage`: shows the usage of the language model, or the tokens that context packs gave."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.doors.cli import times
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table

_COLUMNS = ("calls", "prompt_tokens", "completion_tokens", "seconds", "done", "failed", "undone")


@connected
async def usage(
    client: Client,
    *,
    user: User = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="DAY",
            callback=times.utc_day,
            help="The first day (UTC); default: 29 days before the last.",
        ),
    ] = None,
    last: Annotated[
        str | None,
        typer.Option("--to", metavar="DAY", callback=times.utc_day, help="The last day (UTC); default: today."),
    ] = None,
    reads: Annotated[bool, typer.Option("--reads", help="Tokens of context packs in the last 30 days.")] = False,
) -> CommandAnswer:
    """Show the usage of the language model by day and app, or what context packs gave."""
    if reads:
        return await _reads(client, user)
    params = {"user_id": user, "from": first, "to": last}
    answer = await client.call("GET", "/api/v1/captures/usage", params=params)
    rows = [(row["day"], row["app_name"], *_format_row(row)) for row in answer["days"]]
    total = answer["total"]
    note = (
        f"{answer['from']} to {answer['to']}: calls {total['calls']:,}, prompt tokens {total['prompt_tokens']:,},"
        f" completion tokens {total['completion_tokens']:,}, seconds {total['seconds']:,.1f};"
        f" captures waiting {answer['waiting']:,}"
    )
    columns = ["day", "app", *(name.replace("_", " ") for name in _COLUMNS)]
    return CommandAnswer(answer, Table(columns, rows, wide="app"), notes=[note])


def _format_row(row: dict[str, float]) -> list[str]:
    return [f"{row[name]:.1f}" if name == "seconds" else str(row[name]) for name in _COLUMNS]


async def _reads(client: Client, user: str | None) -> CommandAnswer:
    answer = await client.call("GET", "/api/v1/context/usage", params={"user_id": user})
    rows = [
        (one["day"], one["namespace"], one["calls"], one["used"], one["saved"], one["dropped"], one["app_name"])
        for one in answer["days"]
    ]
    total = answer["total"]
    note = f"{total['calls']:,} packs: {total['used']:,} tokens given, {total['saved']:,} saved"
    columns = ["day", "namespace", "calls", "used", "saved", "dropped", "app"]
    return CommandAnswer(answer, Table(columns, rows, wide="app"), notes=[note])
