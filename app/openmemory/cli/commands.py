"""The list of all `openmemory` commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command_name
from typer.models import CommandInfo

from openmemory.cli.add import add
from openmemory.cli.apps import apps
from openmemory.cli.audit import audit
from openmemory.cli.categories import categories
from openmemory.cli.config import config
from openmemory.cli.connect import clients, connect, disconnect
from openmemory.cli.context import context
from openmemory.cli.doctor import doctor
from openmemory.cli.documents import documents
from openmemory.cli.erase import erase
from openmemory.cli.export import export
from openmemory.cli.files import files
from openmemory.cli.grants import grants
from openmemory.cli.hooks import hook, hooks
from openmemory.cli.import_ import import_
from openmemory.cli.ingest import ingest
from openmemory.cli.installation import installation
from openmemory.cli.keys import keys
from openmemory.cli.list_ import list_
from openmemory.cli.mcp import mcp
from openmemory.cli.memories import accesses, archive, delete, get, history, pause, related, restore, update
from openmemory.cli.open import open_
from openmemory.cli.policies import policies
from openmemory.cli.projects import projects
from openmemory.cli.rules import rules
from openmemory.cli.search import search
from openmemory.cli.serve import serve
from openmemory.cli.service import service
from openmemory.cli.sessions import sessions
from openmemory.cli.share import share
from openmemory.cli.sources import sources
from openmemory.cli.state import state
from openmemory.cli.stop import stop
from openmemory.cli.sync import sync
from openmemory.cli.threads import threads
from openmemory.cli.usage import usage
from openmemory.cli.values import values

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


def _version(wanted: bool) -> None:
    if wanted:
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


cli.command()(serve)
cli.command("open")(open_)
cli.command()(mcp)
cli.command()(connect)
cli.command()(disconnect)
cli.command()(clients)
cli.add_typer(hooks, name="hooks")
cli.command()(hook)
cli.command()(stop)
cli.command()(add)
cli.command()(search)
cli.command("list")(list_)
for command in (get, update, delete, restore, archive, pause, history, related, accesses):
    cli.command()(command)
cli.command("import")(import_)
cli.command()(export)
cli.command()(sync)
cli.command()(doctor)
cli.command()(installation)
cli.command()(ingest)
cli.command()(sources)
cli.add_typer(files, name="files")
cli.add_typer(documents, name="documents")
cli.add_typer(threads, name="threads")
cli.add_typer(sessions, name="sessions")
cli.add_typer(projects, name="projects")
cli.command()(context)
cli.add_typer(share, name="share")
cli.add_typer(state, name="state")
cli.add_typer(values, name="values")
cli.add_typer(rules, name="rules")
cli.add_typer(service, name="service")
cli.add_typer(apps, name="apps")
cli.add_typer(grants, name="grants")
cli.add_typer(keys, name="keys")
cli.add_typer(policies, name="policies")
cli.add_typer(categories, name="categories")
cli.command()(usage)
cli.command()(audit)
cli.command()(erase)
cli.command()(config)


def narrow(arguments: Sequence[str]) -> typer.Typer:
    """Keeps only the command that the arguments begin with, or all if they begin with none. Returns the command line.

    Typer reads the parameters of every command that it knows, which takes longer than most commands.
    """
    commands = [one for one in cli.registered_commands if arguments[:1] == [_name(one)]]
    groups = [one for one in cli.registered_groups if arguments[:1] == [one.name]]
    if commands or groups:
        cli.registered_commands, cli.registered_groups = commands, groups
    return cli


def _name(command: CommandInfo) -> str:
    return command.name or get_command_name(command.callback.__name__ if command.callback else "")
