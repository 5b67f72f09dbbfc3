"""`openmemory keys`: manages the credentials of assistants, programs and people."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.cli.client import Client, connected
from openmemory.cli.options import Json

keys = typer.Typer(help="The keys of assistants, programs and people.", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id or prefix, as `keys list` shows them.")]


@keys.command()
@connected
async def create(
    client: Client,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for, such as laptop.")],
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose memories; default: access.default_user.", show_default=False),
    ] = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="For every user that a request names.")] = False,
    app: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="For this app alone; none: any app, and the user.", show_default=False),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="For this namespace alone; may be repeated.", show_default=False),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="read, write or admin; may be repeated. Default: read and write."),
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="For everyone, with every scope.")] = False,
    days: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=3650, help="Days until it ends.", show_default="never")
    ] = None,
    json: Json = False,
) -> None:
    """Make a key and show it, this once: `keys create claude --user alice --app claude`."""
    from datetime import UTC, datetime, timedelta

    from openmemory.cli.output import as_json
    from openmemory.errors import Invalid

    if user is not None and (everyone or admin):
        raise Invalid("--user", "cannot be given with --everyone or --admin, which are for all users")
    all_users = everyone or admin
    scopes = ["read", "write", "admin"] if admin else scope or ["read", "write"]
    ends = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    body = {
        "name": name, "user_id": None if all_users else client.user(user), "everyone": all_users, "app": app,
        "namespaces": namespace or None, "scopes": scopes, "expires_at": ends,
    }  # fmt: skip
    made = await client.call("POST", "/api/v1/keys", body=body)
    if json:
        as_json(made)
    else:
        _show(made)


@keys.command("list")
@connected
async def list_keys(
    client: Client,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this user's; default: all.", show_default=False)
    ] = None,
    ended: Annotated[bool, typer.Option("--ended", help="The revoked and expired ones too.")] = False,
    json: Json = False,
) -> None:
    """List the keys, newest first."""
    from openmemory.cli.output import as_json, local_time, table

    found = await client.call("GET", "/api/v1/keys", params={"user_id": user, "ended": ended})
    if json:
        as_json(found)
        return
    table(
        ["prefix", "name", "user", "app", "namespaces", "scopes", "made", "last used", "ends"],
        [
            (
                key["prefix"],
                key["name"],
                "(everyone)" if key["user_id"] is None else key["user_id"],
                key["app"] or "(any)",
                ", ".join(key["namespaces"] or ["(all)"]),
                ", ".join(key["scopes"]),
                local_time(key["created_at"]),
                local_time(key["last_used_at"]) or "never",
                "revoked" if key["revoked_at"] else local_time(key["expires_at"]) or "never",
            )
            for key in found["keys"]
        ],
        wide="name",
    )


@keys.command()
@connected
async def revoke(client: Client, key: KeyId, json: Json = False) -> None:
    """End a key: within five seconds nothing opens with it."""
    from openmemory.cli.output import as_json

    answer = await client.call("DELETE", f"/api/v1/keys/{await _id(client, key)}")
    if json:
        as_json(answer)
    else:
        print(f"Revoked {key}.")


@keys.command()
@connected
async def rotate(
    client: Client,
    key: KeyId,
    keep: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, max=2_592_000, help="How long the old one stays good.")
    ] = 0,
    json: Json = False,
) -> None:
    """Make another key with the same rights, show it, and end the old one."""
    from openmemory.cli.output import as_json

    made = await client.call("POST", f"/api/v1/keys/{await _id(client, key)}/rotate", params={"keep": keep})
    if json:
        as_json(made)
    else:
        _show(made)


async def _id(client: Client, key: str) -> str:
    """The id of the key with this id or prefix."""
    if not key.startswith("om_"):
        return key
    from openmemory.errors import Invalid, NotFound

    if "_" in key.removeprefix("om_"):
        raise Invalid("KEY", "must be the prefix alone (om_ and eight characters): a key belongs in no command line")
    found = await client.call("GET", "/api/v1/keys")
    for one in found["keys"]:
        if one["prefix"] == key:
            return str(one["id"])
    raise NotFound("Key not found", code="key_not_found", hint="`openmemory keys list` shows those in force.")


def _show(made: dict[str, Any]) -> None:
    from openmemory.cli.output import note

    print(made["key"])
    note("Keep it: it cannot be shown again.")
