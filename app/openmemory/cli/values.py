"""`openmemory values`: sets, shows, lists and deletes texts under a topic and a key."""

from __future__ import annotations

from typing import Annotated

import typer

from openmemory.cli import project
from openmemory.cli.client import Client, connected, path_part
from openmemory.cli.options import App, AsApp, Namespace, PageNumber, Rows, User
from openmemory.cli.output import CommandAnswer, Table, local_time, page_answer, plain, plain_lines

values = typer.Typer(help="Set, show, list and delete values under a topic and a key.", no_args_is_help=True)

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Such as stack.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="Such as database.")]
_PATH = "/api/v1/values"


def _path(topic: str, key: str) -> str:
    return f"{_PATH}/{path_part(topic)}/{path_part(key, '/')}"


@values.command("set")
@connected
async def set_value(
    client: Client,
    *,
    topic: Topic,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE")],
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Remember a value. It replaces the one under this topic and key."""
    place = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    done = await client.call("PUT", _PATH, body=place | {"topic": topic, "key": key, "value": value})
    what = {"ADD": "added", "UPDATE": "updated", "NONE": "unchanged"}[done["event"]]
    return CommandAnswer(done, f"{plain(topic)}/{plain(key)} {what}.")


@values.command("get")
@connected
async def get_value(
    client: Client, *, topic: Topic, key: Key, user: User = None, app: AsApp = None, namespace: Namespace = None
) -> CommandAnswer:
    """Show a value."""
    place = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    found = await client.call("GET", _path(topic, key), params=place)
    return CommandAnswer(found, *plain_lines(found["value"]))


@values.command("list")
@connected
async def list_values(
    client: Client,
    *,
    topic: Annotated[str | None, typer.Option(metavar="NAME", help="Only this topic.")] = None,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    limit: Rows = 50,
    page: PageNumber = 1,
) -> CommandAnswer:
    """List values, by topic and key."""
    place = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    found = await client.call("GET", _PATH, params=place | {"topic": topic, "size": limit, "page": page})
    rows = [(one["topic"], one["key"], local_time(one["updated_at"]), one["value"]) for one in found["items"]]
    table = Table(["topic", "key", "changed", "value"], rows, wide="value")
    return page_answer(found, table, page, "There are no values.")


@values.command("delete")
@connected
async def delete_value(
    client: Client, *, topic: Topic, key: Key, user: User = None, app: AsApp = None, namespace: Namespace = None
) -> CommandAnswer:
    """Delete a value. `openmemory restore ID` brings it back."""
    place = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    gone = await client.call("DELETE", _path(topic, key), params=place)
    return CommandAnswer(gone, f"{plain(topic)}/{plain(key)} deleted: {gone['id']}.")
