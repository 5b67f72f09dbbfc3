"""`openmemory policies`: the rules by which memories are archived."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.client import Client, connected
from app.cli.options import Json, User

policies = typer.Typer(help="The rules by which memories are archived.", no_args_is_help=True)


@policies.command("list")
@connected
async def list_policies(client: Client, user: User = None, json: Json = False) -> None:
    """List the policies in force, oldest first."""
    from app.cli.output import as_json, local_time, table

    found = await client.call("GET", "/api/v1/archive-policies", params={"user_id": client.user(user)})
    if json:
        as_json(found)
        return
    table(
        ["id", "made", "days", "type", "of"],
        [
            (
                policy["id"],
                local_time(policy["created_at"]),
                policy["days_to_archive"],
                policy["criteria_type"],
                policy["criteria_name"] or policy["criteria_id"],
            )
            for policy in found["policies"]
        ],
        wide="of",
    )


@policies.command()
@connected
async def add(
    client: Client,
    *,
    criteria_type: Annotated[str, typer.Argument(metavar="TYPE", help="user, app, category or namespace.")],
    criteria: Annotated[
        str | None, typer.Argument(metavar="OF", help="The app, category or namespace; none for user.")
    ] = None,
    days: Annotated[int, typer.Option(metavar="N", min=1, max=36_500, help="Days without a change.")],
    user: User = None,
    json: Json = False,
) -> None:
    """Archive what has not changed for so many days: `policies add namespace webshop --days 90`."""
    from app.cli.output import as_json

    body = {
        "user_id": client.user(user), "criteria_type": criteria_type, "criteria_name": criteria,
        "days_to_archive": days,
    }  # fmt: skip
    made = await client.call("POST", "/api/v1/archive-policies", body=body)
    if json:
        as_json(made)
    else:
        print(made["id"])


@policies.command()
@connected
async def remove(
    client: Client,
    policy: Annotated[str, typer.Argument(metavar="ID", help="The policy's id.")],
    user: User = None,
    json: Json = False,
) -> None:
    """End a policy; what it has archived stays archived."""
    from app.cli.output import as_json

    await client.call("DELETE", f"/api/v1/archive-policies/{policy}", params={"user_id": client.user(user)})
    if json:
        as_json({"removed": policy})
    else:
        print(f"Removed {policy}.")
