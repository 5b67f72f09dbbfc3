"""The list of all `openmemory` commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from openmemory.doors.cli.add import add
from openmemory.doors.cli.apps import apps
from openmemory.doors.cli.config import config
from openmemory.doors.cli.connect import clients, connect, disconnect
from openmemory.doors.cli.context import context
from openmemory.doors.cli.doctor import doctor
from openmemory.doors.cli.erase import erase
from openmemory.doors.cli.export import export
from openmemory.doors.cli.help import in_groups
from openmemory.doors.cli.hooks import hook, hooks
from openmemory.doors.cli.import_ import import_
from openmemory.doors.cli.ingest import ingest
from openmemory.doors.cli.installation import installation
from openmemory.doors.cli.list_ import list_
from openmemory.doors.cli.mcp import mcp
from openmemory.doors.cli.memories import accesses, archive, delete, get, history, pause, related, restore, update
from openmemory.doors.cli.open import open_
from openmemory.doors.cli.review import review
from openmemory.doors.cli.rules import rules
from openmemory.doors.cli.search import search
from openmemory.doors.cli.serve import serve
from openmemory.doors.cli.service import service
from openmemory.doors.cli.share import share
from openmemory.doors.cli.stop import stop
from openmemory.doors.cli.sync import sync
from openmemory.doors.cli.timezone import timezone
from openmemory.doors.cli.usage import usage

# Rich's help formatter takes longer to import than everything else in this module together.
cli = typer.Typer(
    name="openmemory",
    help="One memory for all your AI assistants.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"openmemory {version('openmemory-server')}")
        raise typer.Exit


@cli.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """One memory for all your AI assistants."""


class Later(NamedTuple):
    """A command, or a group of commands, whose module is imported when it is called. The module has the name of the
    command, and so has the object in it."""

    help: str
    group: bool = True


_PANELS: dict[str, dict[str, Callable[..., None] | typer.Typer | Later]] = {
    "Memories": {
        "add": add, "search": search, "list": list_, "get": get, "update": update, "delete": delete,
        "restore": restore, "archive": archive, "pause": pause, "history": history, "related": related,
        "review": review,
        "supersede": Later("Archive a memory in whose place another one is true from now on.", group=False),
        "conflicts": Later("List the facts that disagree, and decide which one holds."),
        "duplicates": Later("List memories that say nearly the same, and keep one or both."),
        "change": Later("Change many memories at once.", group=False),
        "timeline": Later("Show memories as they were at a time, and what changed."),
        "captures": Later("List what was sent to the language model, and undo what it made of it."),
        "undo": Later("Undo a decision, or a change of many memories, some minutes later at most.", group=False),
        "accesses": accesses,
        "categories": Later("List, describe and assign categories."),
        "policies": Later("Manage the rules by which memories are archived or expire."),
    },
    "Projects and sources": {
        "context": context,
        "projects": Later("Register, list, show, trust, check, move and delete projects."),
        "state": Later("Show and save the state of a project: one JSON object for each namespace."),
        "values": Later("Set, show, list and delete values under a topic and a key."),
        "links": Later("Link memories, and list and remove links."),
        "share": share, "ingest": ingest,
        "sources": Later(
            "List the conversations, sessions, files and documents that are kept, the last changed first.", group=False
        ),
        "files": Later("List and search the files that `openmemory ingest` has kept."),
        "documents": Later("Store, list, search, read and delete documents, such as PDFs."),
        "threads": Later("Store, search, read and delete conversations."),
        "sessions": Later("Save, list, search and read sessions: numbered conversations with a title and a summary."),
        "slack": Later("Load, import, search and forget channels of Slack."),
    },
    "Assistants": {
        "connect": connect, "disconnect": disconnect, "clients": clients, "hooks": hooks, "hook": hook,
        "rules": rules, "mcp": mcp,
    },
    "Access": {
        "activity": Later("Show what came into the memory, and what apps read."),
        "audit": Later("Show who did what, when and from which address, newest first.", group=False),
        "usage": usage, "apps": apps,
        "grants": Later("Manage the rules on which app may read what."),
        "keys": Later("Manage the API keys of assistants, programs and people."),
        "timezone": timezone,
    },
    "Moving and erasing": {"import": import_, "export": export, "erase": erase},
    "Service": {
        "serve": serve, "stop": stop, "open": open_, "doctor": doctor, "sync": sync, "config": config,
        "models": Later("Show, try and choose the language model and the embedder."),
        "service": service, "installation": installation,
    },
}  # fmt: skip
"""All commands, by the heading under which `openmemory --help` lists them."""

for _panel, _commands in _PANELS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, Later) and _command.group:
            cli.add_typer(typer.Typer(), name=_name, help=_command.help, rich_help_panel=_panel)
        elif isinstance(_command, Later):
            cli.command(_name, help=_command.help, rich_help_panel=_panel)(lambda: None)
        elif isinstance(_command, typer.Typer):
            cli.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            cli.command(_name, rich_help_panel=_panel)(_command)
in_groups(cli)


def narrow(arguments: Sequence[str]) -> typer.Typer:
    """Keeps only the command that the arguments begin with, or all if they begin with none. Returns the command line.

    Typer reads the parameters of every command that it knows, which takes longer than most commands.
    """
    commands = [one for one in cli.registered_commands if arguments[:1] == [one.name]]
    groups = [one for one in cli.registered_groups if arguments[:1] == [one.name]]
    if commands or groups:
        cli.registered_commands, cli.registered_groups = commands, groups
        _load()
    return cli


def complete() -> typer.Typer:
    """Imports the commands that are imported later. Returns the command line with all commands."""
    _load()
    return cli


def _load() -> None:
    """Imports the commands that are registered and imported later."""
    later = {name for commands in _PANELS.values() for name, command in commands.items() if isinstance(command, Later)}
    for group in cli.registered_groups:
        if group.name in later:
            group.typer_instance = in_groups(_import(group.name))
    for command in cli.registered_commands:
        if command.name in later:
            command.callback, command.help = _import(command.name), None


def _import(name: str) -> Any:
    return getattr(import_module(f"openmemory.doors.cli.{name}"), name)
