"""`openmemory config`: shows the effective settings."""

from __future__ import annotations

import re
from typing import Any

from openmemory.cli.options import ConfigFile, DataDir, Json, load_settings


def config(data_dir: DataDir = None, config: ConfigFile = None, json: Json = False) -> None:
    """Show the effective settings; secrets are masked."""
    from openmemory.cli.finding import data_folder
    from openmemory.cli.output import as_json, note, table
    from openmemory.config.settings import keys

    settings = load_settings(config, data_dir=data_dir)
    shown: dict[str, Any] = {}
    for path, field in keys().items():
        value: Any = settings
        for name in path:
            value = getattr(value, name)
        shown[".".join(path)] = _masked(value), field.description
    shown["data_dir"] = str(data_folder(settings)), shown["data_dir"][1]
    if json:
        told = settings.inherited
        more = {
            "inherited": {
                "used": {note.name: note.meaning for note in told.used},
                "without_effect": {note.name: note.meaning for note in told.ignored},
            }
        }
        as_json({name: value for name, (value, _) in shown.items()} | more)
    else:
        table(
            ["setting", "value", "meaning"],
            [(name, _words(value), meaning) for name, (value, meaning) in shown.items()],
            wide="meaning",
        )
        for line in settings.inherited.lines():
            note(line)


def _masked(value: Any) -> Any:
    """A setting with its secrets masked, including secrets inside URLs."""
    from pydantic import SecretStr

    if isinstance(value, SecretStr):
        return "********" if value.get_secret_value() else ""
    if isinstance(value, str):
        return re.sub(r"(?<=://)[^/@]+(?=@)", "********", value)
    return list(value) if isinstance(value, tuple) else value


def _words(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
