"""`openmemory grants`: manages the rules that control which app may read what."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json, User

grants = typer.Typer(help="The rules that say which app may read what.", no_args_is_help=True)

AppName = Annotated[
    str | None, typer.Option("--app", metavar="NAME", help="The app it speaks to; none: every app.", show_default=False)
]


@grants.command("list")
@connected
async def list_grants(client: Client, user: User = None, app: AppName = None, json: Json = False) -> None:
    """List the rules in force, oldest first."""
    from openmemory.cli.output import as_json, local_time, table

    found = await client.call("GET", "/api/v1/grants", params={"user_id": client.user(user), "app": app})
    if json:
        as_json(found)
        return
    table(
        ["id", "made", "effect", "app", "type", "object"],
        [
            (
                grant["id"],
                local_time(grant["created_at"]),
                grant["effect"],
                grant["app"] or "(every app)",
                grant["object_type"],
                grant["object"],
            )
            for grant in found["grants"]
        ],
        wide="object",
    )


@grants.command()
@connected
async def add(
    client: Client,
    *,
    effect: Annotated[str, typer.Argument(metavar="allow|deny", help="What the rule does.")],
    object_type: Annotated[str, typer.Argument(metavar="TYPE", help="memory, app, namespace, category or all.")],
    object_: Annotated[
        str | None, typer.Argument(metavar="OBJECT", help="An id or a name; none for all.", show_default=False)
    ] = None,
    app: AppName = None,
    user: User = None,
    json: Json = False,
) -> None:
    """Make a rule: `grants add deny namespace health --app cursor`."""
    from openmemory.cli.output import as_json

    body = {"user_id": client.user(user), "effect": effect, "object_type": object_type, "object": object_, "app": app}
    made = await client.call("POST", "/api/v1/grants", body=body)
    if json:
        as_json(made)
    else:
        print(f"{made['effect']} {made['app'] or 'every app'} {made['object_type']} {made['object'] or ''}".rstrip())
        print(made["id"])


@grants.command()
@connected
async def revoke(
    client: Client,
    grant: Annotated[str, typer.Argument(metavar="ID", help="The rule's id.")],
    user: User = None,
    json: Json = False,
) -> None:
    """End a rule."""
    from openmemory.cli.output import as_json

    await client.call("DELETE", f"/api/v1/grants/{grant}", params={"user_id": client.user(user)})
    if json:
        as_json({"revoked": grant})
    else:
        print(f"Revoked {grant}.")


@grants.command()
@connected
async def explain(
    client: Client,
    *,
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="The memory's id.")],
    app: Annotated[str, typer.Option("--app", metavar="NAME", help="The app that would read it.")],
    user: User = None,
    json: Json = False,
) -> None:
    """Tell whether an app may read a memory, and by which rule."""
    from openmemory.cli.output import as_json

    params = {"user_id": client.user(user), "app": app, "memory_id": memory}
    told = await client.call("GET", "/api/v1/grants/explain", params=params)
    if json:
        as_json(told)
        return
    print(f"{'yes' if told['allowed'] else 'no'}: {told['reason']}")
    for grant in told["considered"]:
        words = (grant["effect"], grant["app"] or "every app", grant["object_type"], grant["object"] or "")
        print(f"  {grant['id']}  {' '.join(words)}".rstrip())
