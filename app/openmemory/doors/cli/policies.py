"""`openmemory policies`: manages the rules by which memories are archived or expire, and shows what they will do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.ids import match_id, whole
from openmemory.doors.cli.operations import add as add_operation
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, memories
from openmemory.operations.policies import PATH, list_archive_policies, list_upcoming

policies = typer.Typer(no_args_is_help=True)


def _format_list(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (
            policy["id"],
            local_time(policy["created_at"]),
            policy["days_to_archive"] or policy["days_to_expire"],
            policy["criteria_type"],
            policy["criteria_name"] or policy["criteria_id"],
            "archive" if policy["days_to_archive"] else "expire",
        )
        for policy in answer["policies"]
    ]
    return CommandAnswer(answer, Table(["id", "made", "days", "type", "of", "action"], rows, wide="of"))


def _upcoming(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (local_time(item["at"]), item["action"], item["policy_id"] or "itself", item["memory_id"], item["content"])
        for item in answer["items"]
    ]
    notes = [f"Page {arguments['page']}; {memories(answer['total'])} in all."] if len(rows) < answer["total"] else []
    return CommandAnswer(answer, Table(["when", "action", "by", "id", "memory"], rows, wide="memory"), notes=notes)


add_operation(policies, list_archive_policies, _format_list)
add_operation(policies, list_upcoming, _upcoming)


@policies.command()
@connected
async def add(
    client: Client,
    *,
    criteria_type: Annotated[str, typer.Argument(metavar="TYPE", help="user, app, category or namespace.")],
    criteria: Annotated[
        str | None, typer.Argument(metavar="OF", help="The name of the app, category or namespace; none for user.")
    ] = None,
    days: Annotated[
        int, typer.Option(metavar="N", min=1, max=36_500, help="Days since the last change, or since creation.")
    ],
    expire: Annotated[bool, typer.Option("--expire", help="Memories expire N days after their creation.")] = False,
    user: User = None,
) -> CommandAnswer:
    """Archive memories N days after their last change, such as `policies add namespace webshop --days 90`.

    With --expire, memories expire N days after their creation. Nobody finds an expired memory.
    """
    body = {
        "user_id": user, "criteria_type": criteria_type, "criteria_name": criteria,
        "days_to_expire" if expire else "days_to_archive": days,
    }  # fmt: skip
    answer = await client.call("POST", PATH, body=body)
    return CommandAnswer(answer, answer["id"])


@policies.command()
@connected
async def remove(
    client: Client,
    policy: Annotated[str, typer.Argument(metavar="ID", help="The policy's id, or its first characters.")],
    user: User = None,
) -> CommandAnswer:
    """Remove a policy. Memories that it archived stay archived, and expired ones stay expired."""
    if whole(policy) is None:
        answer = await client.call("GET", PATH, params={"user_id": user})
        policy = match_id(policy, (str(one["id"]) for one in answer["policies"]), "Policy")
    await client.call("DELETE", f"{PATH}/{policy}", params={"user_id": user})
    return CommandAnswer({"removed": policy}, f"Removed {policy}.")
