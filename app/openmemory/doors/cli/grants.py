"""`openmemory grants`: manages the rules that control which app may read what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.ids import match_id, whole
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table, local_time
from openmemory.operations.grants import PATH, create_grant, explain_grants, list_grants

grants = typer.Typer(no_args_is_help=True)


def _rules(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
        (
            grant["id"],
            local_time(grant["created_at"]),
            grant["effect"],
            grant["app"] or "(every app)",
            grant["object_type"],
            grant["object_name"] or grant["object"],
            "" if grant["object"] == grant["object_name"] else grant["object"],
        )
        for grant in answer["grants"]
    ]
    columns = ["id", "made", "effect", "app", "type", "object", "object id"]
    return CommandAnswer(answer, Table(columns, rows, wide="object"))


def _format_explanation(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    considered = (f"  {grant['id']}  {_words(grant)}" for grant in answer["considered"])
    return CommandAnswer(answer, f"{'yes' if answer['allowed'] else 'no'}: {answer['reason']}", *considered)


def _words(grant: dict[str, Any]) -> str:
    name = grant["object_name"] or grant["object"] or ""
    return f"{grant['effect']} {grant['app'] or 'every app'} {grant['object_type']} {name}".rstrip()


add(grants, list_grants, _rules)
add(grants, create_grant, lambda answer, _: CommandAnswer(answer, _words(answer), answer["id"]))
add(grants, explain_grants, _format_explanation)


@grants.command()
@connected
async def revoke(
    client: Client,
    grant: Annotated[str, typer.Argument(metavar="ID", help="The rule's id, or its first characters.")],
    user: User = None,
) -> CommandAnswer:
    """Revoke a rule."""
    if whole(grant) is None:
        answer = await client.call("GET", PATH, params={"user_id": user})
        grant = match_id(grant, (str(one["id"]) for one in answer["grants"]), "Rule")
    await client.call("DELETE", f"{PATH}/{grant}", params={"user_id": user})
    return CommandAnswer({"revoked": grant}, f"Revoked {grant}.")
