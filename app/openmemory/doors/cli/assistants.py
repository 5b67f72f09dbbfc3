"""The assistants of this machine that a command names, and changes of their configuration files."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from openmemory.doors.cli.output import CommandAnswer, note

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from openmemory.connect.clients import AssistantClient
    from openmemory.connect.connections import FileChange

    Plan = tuple[AssistantClient, Callable[[], FileChange]]

Names = Annotated[
    list[str] | None,
    typer.Argument(metavar="CLIENT", help="Such as cursor; default: all that are installed.", show_default=False),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes and make none.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def chosen_from(clients: list[AssistantClient], names: list[str] | None) -> list[AssistantClient]:
    """The assistants of these names, or all that are installed.

    Raises:
        Invalid: a name is unknown.
        NotFound: none is installed.
    """
    from openmemory.errors import Invalid, NotFound

    clients_by_name = {it.app: it for it in clients}
    if names:
        for name in names:
            if name not in clients_by_name:
                near = _nearest(name, clients)
                hint = f"; did you mean {near!r}?" if near else ""
                raise Invalid("CLIENT", f"{name!r} is not known here; valid are {', '.join(clients_by_name)}{hint}")
        return [clients_by_name[name] for name in dict.fromkeys(names)]
    installed = [it for it in clients_by_name.values() if it.installed]
    if not installed:
        raise NotFound(
            "no assistant was found for this account", code="no_client", hint=f"name one: {', '.join(clients_by_name)}"
        )
    return installed


def _nearest(name: str, clients: list[AssistantClient]) -> str | None:
    """The name of the assistant that a text may mean: part of a name or title, or nearly one."""
    from difflib import get_close_matches

    text = name.strip().lower()
    words = {word: it.app for it in clients for word in (it.title.lower(), it.app)}
    part = next((app for word, app in words.items() if len(text) > 2 and text in word), None)
    near = get_close_matches(text, list(words), 1)
    return part or (words[near[0]] if near else None)


def adding(
    clients: list[AssistantClient],
    data_dir: str | None,
    config: Path | None,
    *,
    user: str | None = None,
    url: str | None = None,
    budget: int | None = None,
    more: Sequence[str] = (),
) -> list[Plan]:
    """The changes that add the hooks of some assistants."""
    from openmemory.connect import connections
    from openmemory.connect.clients import ServerAddress
    from openmemory.connect.servers import program
    from openmemory.doors.cli.client import checked_url
    from openmemory.doors.cli.finding import data_folder
    from openmemory.doors.cli.options import load_settings

    if url is not None:
        where = ["--url", checked_url(url).rstrip("/")]
    else:
        # A hook has no time to read settings.
        where = ["--data-dir", str(data_folder(load_settings(config, here=False, data_dir=data_dir)))]
    options = [*where, *(["--user", user] if user else []), *(["--budget", str(budget)] if budget else []), *more]
    addresses = {it.app: ServerAddress(command=(*program(), "hook", "--client", it.app, *options)) for it in clients}
    return [(it, partial(connections.connecting, it, addresses[it.app], it.file)) for it in clients]


def removing(clients: list[AssistantClient]) -> list[Plan]:
    """The changes that take the hooks of some assistants out."""
    from openmemory.connect import connections

    return [(it, partial(connections.disconnecting, it, it.file)) for it in clients if it.file.exists()]


def with_hooks(clients: list[AssistantClient]) -> list[AssistantClient]:
    """The same assistants as the files with their hooks, for those that have hooks."""
    from openmemory.connect.hooks import hooked

    names = {it.app for it in clients}
    return [it for it in hooked() if it.app in names]


def change_files(
    plans: list[Plan],
    *,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Shows the planned changes, and makes those that are possible. Fails at the end if any was not."""
    import sys

    from openmemory.connect.connections import apply
    from openmemory.errors import Invalid

    changes: list[tuple[FileChange, dict[str, str]]] = []
    results: list[dict[str, str]] = []
    for client, plan in plans:
        result = {"client": client.app, "status": "unchanged"}
        results.append(result)
        try:
            change = plan()
        except Invalid as error:
            result |= {"status": "failed", "detail": error.message}
            continue
        result["file"] = str(change.file)
        if change.needed:
            result["status"] = "planned"
            changes.append((change, result))
        if not json:
            print(change.diff() or f"{client.title}: nothing to change in {change.file}")
        if change.exposed:
            result["note"] = f"{change.file} gets a key, and so becomes readable for its owner alone."
            if not json:
                print(result["note"])
    if changes and not (dry_run or yes):
        if json or not sys.stdin.isatty():
            raise Invalid("--yes", "must be given where nobody can be asked; --dry-run shows the changes")
        question = "Change this file?" if len(changes) == 1 else "Change these files?"
        typer.confirm(question, default=True, abort=True, err=True)
    for change, result in [] if dry_run else changes:
        try:
            apply(change)
        except Invalid as error:
            result |= {"status": "failed", "detail": error.message}
            continue
        result["status"] = "changed"
        if not json:
            print(f"{change.client.title}: changed {change.file}. {change.next_step}")
    errors = [f"error: {result['detail']}" for result in results if result["status"] == "failed"]
    answer = CommandAnswer(results, failed=bool(errors))
    answer.show(json=json)
    for line in errors:
        note(line)
    answer.exit()
