"""`openmemory policies`: manages the rules by which memories are archived or expire, and shows what they will do."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, User

policies = typer.Typer(help="The rules by which memories are archived or expire.", no_args_is_help=True)


@policies.command("list")
@connected
async def list_policies(client: Client, user: User = None, json: Json = False) -> None:
    """List the policies in force, oldest first."""
    from openmemory.cli.output import as_json, local_time, table

    found = await client.call("GET", "/api/v1/archive-policies", params={"user_id": client.user(user)})
    if json:
        as_json(found)
        return
    table(
        ["id", "made", "days", "type", "of", "action"],
        [
            (
                policy["id"],
                local_time(policy["created_at"]),
                policy["days_to_archive"] or policy["days_to_expire"],
                policy["criteria_type"],
                policy["criteria_name"] or policy["criteria_id"],
                "archive" if policy["days_to_archive"] else "expire",
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
    expire: Annotated[
        bool, typer.Option("--expire", help="Let it expire so many days after it was made, changed or not.")
    ] = False,
    user: User = None,
    json: Json = False,
) -> None:
    """Archive what has not changed for so many days: `policies add namespace webshop --days 90`.

    With --expire nobody finds it any more once it is so many days old.
    """
    from openmemory.cli.output import as_json

    body = {
        "user_id": client.user(user), "criteria_type": criteria_type, "criteria_name": criteria,
        "days_to_expire" if expire else "days_to_archive": days,
    }  # fmt: skip
    made = await client.call("POST", "/api/v1/archive-policies", body=body)
    if json:
        as_json(made)
    else:
        print(made["id"])


@policies.command()
@connected
async def upcoming(
    client: Client,
    *,
    within_days: Annotated[int, typer.Option(metavar="N", min=0, max=36_500, help="Of how many days to tell.")] = 7,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100, metavar="N", help="Memories of a page.")] = 50,
    page: Annotated[int, typer.Option(min=1, metavar="N", help="Which page.")] = 1,
    user: User = None,
    json: Json = False,
) -> None:
    """List what will expire or be archived by itself, soonest first."""
    from openmemory.cli.output import as_json, local_time, note, table

    params = {"user_id": client.user(user), "within_days": within_days, "size": limit, "page": page}
    found = await client.call("GET", "/api/v1/archive-policies/upcoming", params=params)
    if json:
        as_json(found)
        return
    table(
        ["when", "action", "by", "id", "memory"],
        [
            (local_time(item["at"]), item["action"], item["policy_id"] or "itself", item["memory_id"], item["content"])
            for item in found["items"]
        ],
        wide="memory",
    )
    if len(found["items"]) < found["total"]:
        note(f"Page {page}; {found['total']} memories in all.")


@policies.command()
@connected
async def remove(
    client: Client,
    policy: Annotated[str, typer.Argument(metavar="ID", help="The policy's id.")],
    user: User = None,
    json: Json = False,
) -> None:
    """End a policy; what it has archived stays archived, what has expired stays expired."""
    from openmemory.cli.output import as_json

    await client.call("DELETE", f"/api/v1/archive-policies/{policy}", params={"user_id": client.user(user)})
    if json:
        as_json({"removed": policy})
    else:
        print(f"Removed {policy}.")
