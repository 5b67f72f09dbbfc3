"""`openmemory config`: shows the effective settings, and confirms those of a folder."""

from __future__ import annotations

from typing import Any

import typer

from openmemory.doors.cli.folder_settings import trust
from openmemory.doors.cli.options import ConfigFile, DataDir, Json, load_settings
from openmemory.doors.cli.output import CommandAnswer, Table

config = typer.Typer(invoke_without_command=True)
config.command()(trust)


@config.callback()
def show(context: typer.Context, data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show the effective settings. Secrets are masked."""
    if context.invoked_subcommand is not None:
        return
    from openmemory.config.settings import keys
    from openmemory.doors.cli.finding import data_folder

    settings = load_settings(config, data_dir=data_dir)
    values: dict[str, Any] = {}
    rows = []
    for path, field in keys().items():
        name = ".".join(path)
        values[name] = str(data_folder(settings)) if name == "data_dir" else settings.masked(path)
        text = ", ".join(values[name]) if isinstance(values[name], list) else values[name]
        rows.append((name, str(text), field.description))
    values["inherited"] = {
        "used": settings.inherited.used,
        "without_effect": settings.inherited.ignored,
    }
    table = Table(["setting", "value", "meaning"], rows, wide="meaning")
    CommandAnswer(values, table, asides=[*settings.warnings(), *settings.inherited.lines()]).show(json=json)
