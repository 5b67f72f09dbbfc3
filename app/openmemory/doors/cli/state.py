"""`openmemory state`: shows and saves the state of a project, one JSON object for each namespace."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer

from openmemory.doors.cli import project, scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import App, Namespace, User, json_of, words
from openmemory.doors.cli.output import CommandAnswer, local_time, plain, plain_lines, read_stdin, text_of
from openmemory.errors import SetupError
from openmemory.operations.state import read_state, save_state, state_history

state = typer.Typer(no_args_is_help=True)


def _state(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    pretty = "" if answer["state"] is None else orjson.dumps(answer["state"], option=orjson.OPT_INDENT_2).decode()
    notes = [answer["note"]] if answer.get("note") else []
    summary = f"Revision {answer['revision']} of {plain(answer['namespace'])}, by {plain(answer['app_name'])}"
    notes.append(f"{summary}, {local_time(answer['updated_at'])}: {plain(answer['reason'] or '')}")
    return CommandAnswer(answer, *plain_lines(pretty), asides=notes)


def _history(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    lines = list[str]()
    for one in answer["revisions"]:
        who = f"{one['revision']}. {local_time(one['changed_at'])} {plain(one['app_name'] or '')}"
        lines.append(f"{who}: {plain(one['reason'] or '')}")
        lines += [f"  {plain(leaf['path'])}: {_json(leaf['old'])} -> {_json(leaf['new'])}" for leaf in one["changes"]]
    return CommandAnswer(answer, *lines)


def _json(value: Any) -> str:
    return plain(orjson.dumps(value).decode())


add(state, read_state, _state)


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
    where = scope.target(namespace)
    head = project.describe(".").get("head") if where == scope.here(None) else None
    body = {
        "user_id": user, "app": app, "namespace": where,
        "reason": words(reason), "state": json_of(value, "--state" if file is None else "--file"),
        "expected_revision": revision, "commit": head,
    }  # fmt: skip
    answer = await client.call(save_state.method, save_state.path, body=body)
    size = f"{answer['size']:,} of {answer['limit']:,} characters"
    return CommandAnswer(answer, f"{plain(answer['namespace'])} has revision {answer['revision']}: {size}.")


add(state, state_history, _history)
