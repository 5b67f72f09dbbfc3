"""`openmemory grants`: manages the rules that control which app may read what."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.ids import meant, whole
from openmemory.cli.options import User
from openmemory.cli.output import CommandAnswer, Table, local_time

grants = typer.Typer(help="Manage the rules on which app may read what.", no_args_is_help=True)

AppName = Annotated[
    str | None, typer.Option("--app", metavar="NAME", help="The app that the rule is for; default: every app.")
]


@grants.command("list")
@connected
async def list_grants(client: Client, user: User = None, app: AppName = None) -> CommandAnswer:
    """List the rules in force, oldest first."""
    found = await client.call("GET", "/api/v1/grants", params={"user_id": user, "app": app})
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
        for grant in found["grants"]
    ]
    return CommandAnswer(
        found, Table(["id", "made", "effect", "app", "type", "object", "object id"], rows, wide="object")
    )


@grants.command()
@connected
async def add(
    client: Client,
    *,
    effect: Annotated[str, typer.Argument(metavar="EFFECT", help="allow or deny.")],
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="memory, app, namespace, category or all.")],
    object_: Annotated[
        str | None,
        typer.Argument(
            metavar="OBJECT", help="The id (of a memory: or its first characters) or name of the object; none for all."
        ),
    ] = None,
    app: AppName = None,
    user: User = None,
) -> CommandAnswer:
    """Add a rule, such as `grants add deny namespace health --app cursor`."""
    body = {"user_id": user, "effect": effect, "object_type": object_type, "object": object_, "app": app}
    made = await client.call("POST", "/api/v1/grants", body=body)
    return CommandAnswer(made, _words(made), made["id"])


@grants.command()
@connected
async def revoke(
    client: Client,
    grant: Annotated[str, typer.Argument(metavar="ID", help="The rule's id, or its first characters.")],
    user: User = None,
) -> CommandAnswer:
    """Revoke a rule."""
    if whole(grant) is None:
        listed = await client.call("GET", "/api/v1/grants", params={"user_id": user})
        grant = meant(grant, (str(one["id"]) for one in listed["grants"]), "Rule")
    await client.call("DELETE", f"/api/v1/grants/{grant}", params={"user_id": user})
    return CommandAnswer({"revoked": grant}, f"Revoked {grant}.")


@grants.command()
@connected
async def explain(
    client: Client,
    *,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="The memory's id, or its first characters.")],
    app: Annotated[str, typer.Option("--app", metavar="NAME", help="The app.")],
    user: User = None,
) -> CommandAnswer:
    """Show if an app may read a memory, and which rule decides."""
    params = {"user_id": user, "app": app, "memory_id": memory}
    answer = await client.call("GET", "/api/v1/grants/explain", params=params)
    considered = (f"  {grant['id']}  {_words(grant)}" for grant in answer["considered"])
    return CommandAnswer(answer, f"{'yes' if answer['allowed'] else 'no'}: {answer['reason']}", *considered)


def _words(grant: dict[str, Any]) -> str:
    named = grant["object_name"] or grant["object"] or ""
    return f"{grant['effect']} {grant['app'] or 'every app'} {grant['object_type']} {named}".rstrip()
