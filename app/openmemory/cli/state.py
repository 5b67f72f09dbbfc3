"""`openmemory state`: shows and saves the state of a project, one JSON object for each namespace."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from openmemory.cli import project
from openmemory.cli.client import Client, connected
from openmemory.cli.options import App, AsApp, Namespace, User, json_of, words
from openmemory.cli.output import CommandAnswer, local_time, plain, plain_lines, read_stdin, text_of
from openmemory.errors import SetupError

state = typer.Typer(
    help="Show and save the state of a project: one JSON object for each namespace.", no_args_is_help=True
)

_PATH = "/api/v1/state"


@state.command()
@connected
async def show(client: Client, *, user: User = None, app: AsApp = None, namespace: Namespace = None) -> CommandAnswer:
    """Show the state. The namespace is that of the folder, if none is given."""
    params = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    found = await client.call("GET", _PATH, params=params)
    pretty = "" if found["state"] is None else orjson.dumps(found["state"], option=orjson.OPT_INDENT_2).decode()
    notes = [found["note"]] if found.get("note") else []
    said = f"Revision {found['revision']} of {plain(found['namespace'])}, by {plain(found['app_name'])}"
    notes.append(f"{said}, {local_time(found['updated_at'])}: {plain(found['reason'] or '')}")
    return CommandAnswer(found, *plain_lines(pretty), asides=notes)


@state.command()
@connected
async def save(
    client: Client,
    *,
    reason: Annotated[list[str], typer.Argument(metavar="REASON", help="Why, in a sentence; it needs no quotes.")],
    value: Annotated[str | None, typer.Option("--state", metavar="JSON", help="The whole state.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="FILE|-", help="A file with the whole state.")] = None,
    revision: Annotated[
        int | None, typer.Option("--expect", metavar="N", help="Fail unless the state has this revision.")
    ] = None,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Save the state, which replaces the one before, and remember the reason."""
    if (value is None) == (file is None):
        raise SetupError("one of --state and --file is needed")
    if file is not None:
        value = read_stdin() if file == "-" else text_of(file)
    where = project.here(namespace)
    head = project.described(".").get("head") if where == project.here(None) else None
    body = {
        "user_id": user, "app": app, "namespace": where,
        "reason": words(reason), "state": json_of(value, "--state" if file is None else "--file"),
        "expected_revision": revision, "commit": head,
    }  # fmt: skip
    saved = await client.call("POST", f"{_PATH}/checkpoint", body=body)
    size = f"{saved['size']:,} of {saved['limit']:,} characters"
    return CommandAnswer(saved, f"{plain(saved['namespace'])} has revision {saved['revision']}: {size}.")


@state.command()
@connected
async def history(
    client: Client, *, user: User = None, app: AsApp = None, namespace: Namespace = None
) -> CommandAnswer:
    """Show what each revision changed, the last first."""
    params = {"user_id": user, "app": app, "namespace": project.here(namespace)}
    found = await client.call("GET", f"{_PATH}/history", params=params)
    lines = list[str]()
    for one in found["revisions"]:
        who = f"{one['revision']}. {local_time(one['changed_at'])} {plain(one['app_name'] or '')}"
        lines.append(f"{who}: {plain(one['reason'] or '')}")
        lines += [f"  {plain(leaf['path'])}: {_json(leaf['old'])} -> {_json(leaf['new'])}" for leaf in one["changes"]]
    return CommandAnswer(found, *lines)


def _json(value: Any) -> str:
    return plain(orjson.dumps(value).decode())
