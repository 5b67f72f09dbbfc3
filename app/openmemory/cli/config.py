"""`openmemory config`: shows the effective settings."""

from __future__ import annotations

from typing import Any

from openmemory.cli.options import ConfigFile, DataDir, Json, load_settings
from openmemory.cli.output import CommandAnswer, Table


def config(data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show the effective settings. Secrets are masked."""
    from openmemory.cli.finding import data_folder
    from openmemory.config.settings import keys

    settings = load_settings(config, data_dir=data_dir)
    values: dict[str, Any] = {}
    rows = []
    for path, field in keys().items():
        name = ".".join(path)
        values[name] = str(data_folder(settings)) if name == "data_dir" else settings.masked(path)
        shown = ", ".join(values[name]) if isinstance(values[name], list) else values[name]
        rows.append((name, str(shown), field.description))
    values["inherited"] = {
        "used": settings.inherited.used,
        "without_effect": settings.inherited.ignored,
    }
    table = Table(["setting", "value", "meaning"], rows, wide="meaning")
    CommandAnswer(values, table, asides=[*settings.warnings(), *settings.inherited.lines()]).show(json=json)
