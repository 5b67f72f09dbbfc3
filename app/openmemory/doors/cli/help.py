"""The help of commands in plain text: commands and options stand in groups, and nothing is cut off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup


class GroupedCommand(TyperCommand):
    """A command whose help shows its options in groups."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The arguments as people write them: `ID...`, or `[ID...]` if they may be left out."""
        pieces = [self.options_metavar or ""]
        for parameter in self.get_params(ctx):
            if isinstance(parameter, TyperArgument) and not parameter.hidden:
                name = _argument(parameter)
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes arguments and options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if isinstance(parameter, TyperArgument):
                sections["Arguments"].append((_argument(parameter), record[1].removesuffix("  [required]")))
            else:
                panel = getattr(parameter, "rich_help_panel", None) or "Options"
                sections.setdefault(panel, []).append(record)
        _write(formatter, sections.items())


class GroupedCommands(TyperGroup):
    """A command with commands of its own, which its help shows in groups, each with its whole first sentence."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        """Writes the commands."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            sections.setdefault(panel, []).append((name, command.get_short_help_str(limit=10_000)))
        _write(formatter, sections.items())


def in_groups(app: typer.Typer) -> typer.Typer:
    """Has all commands of an application write their help in groups. Returns the application."""
    app.info.cls = GroupedCommands
    for command in app.registered_commands:
        command.cls = GroupedCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            in_groups(group.typer_instance)
    return app


def _argument(argument: TyperArgument) -> str:
    name = argument.metavar or (argument.name or "").upper()
    return name if argument.nargs == 1 else f"{name}..."


def _write(formatter: Any, sections: Iterable[tuple[str, list[tuple[str, str]]]]) -> None:
    for title, records in sections:
        if records:
            with formatter.section(title):
                formatter.write_dl(records)
