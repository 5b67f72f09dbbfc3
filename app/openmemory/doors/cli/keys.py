"""`openmemory keys`: manages the credentials of assistants, programs and people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import User
from openmemory.doors.cli.output import CommandAnswer, Table, local_time
from openmemory.errors import Invalid, NotFound
from openmemory.operations.keys import PATH, list_keys

keys = typer.Typer(no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="KEY", help="The key's id or prefix, as `keys list` shows it.")]


@keys.command()
@connected
async def create(
    client: Client,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The purpose of the key, such as laptop.")],
    user: User = None,
    everyone: Annotated[bool, typer.Option("--everyone", help="The key is valid for every user.")] = False,
    app: Annotated[
        str | None, typer.Option(metavar="NAME", help="The key is valid for this app only; default: every app.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="The key is valid for this namespace only; may be repeated."),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="read, write or admin; may be repeated. Default: read and write."),
    ] = None,
    admin: Annotated[bool, typer.Option("--admin", help="The key is valid for every user and has all scopes.")] = False,
    days: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=3650, help="The key expires after N days.", show_default="never"),
    ] = None,
) -> CommandAnswer:
    """Create a key and show it once.

    Example: `openmemory keys create claude --user alice --app claude`.
    """
    if user is not None and (everyone or admin):
        raise Invalid("--user", "cannot be combined with --everyone or --admin, which are for all users")
    all_users = everyone or admin
    scopes = ["read", "write", "admin"] if admin else scope or ["read", "write"]
    ends = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    body = {
        "name": name, "user_id": None if all_users else await client.user(user), "everyone": all_users, "app": app,
        "namespaces": namespace or None, "scopes": scopes, "expires_at": ends,
    }  # fmt: skip
    return _format_key(await client.call("POST", PATH, body=body))


def _format_list(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    rows = [
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
        for key in answer["keys"]
    ]
    columns = ["prefix", "name", "user", "app", "namespaces", "scopes", "made", "last used", "ends"]
    return CommandAnswer(answer, Table(columns, rows, wide="name"))


add(keys, list_keys, _format_list)


@keys.command()
@connected
async def revoke(client: Client, key: KeyId) -> CommandAnswer:
    """Revoke a key. All processes reject it within five seconds."""
    answer = await client.call("DELETE", f"{PATH}/{await _id(client, key)}")
    return CommandAnswer(answer, f"Revoked {key}.")


@keys.command()
@connected
async def rotate(
    client: Client,
    key: KeyId,
    keep: Annotated[
        int, typer.Option(metavar="SECONDS", min=0, max=2_592_000, help="How long the old key stays valid.")
    ] = 0,
) -> CommandAnswer:
    """Replace a key with a new one of the same rights."""
    return _format_key(await client.call("POST", f"{PATH}/{await _id(client, key)}/rotate", params={"keep": keep}))


async def _id(client: Client, key: str) -> str:
    """The id of the key with this id or prefix."""
    if not key.startswith("om_"):
        return key
    if "_" in key.removeprefix("om_"):
        raise Invalid("KEY", "must be the prefix (om_ and eight characters) and not the key: command lines are visible")
    answer = await client.call("GET", PATH)
    for one in answer["keys"]:
        if one["prefix"] == key:
            return str(one["id"])
    raise NotFound("Key not found", code="key_not_found", hint="`openmemory keys list` shows the valid keys")


def _format_key(answer: dict[str, Any]) -> CommandAnswer:
    return CommandAnswer(answer, answer["key"], asides=["Store the key now: it cannot be shown again."])
