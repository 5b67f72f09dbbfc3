"""Settings files: their path and their content."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from openmemory.errors import SetupError

VARIABLE = "OPENMEMORY_CONFIG"
"""The variable that names the settings file."""

FILE_NAME = "openmemory.toml"


class SettingsFile(NamedTuple):
    """A settings file that was read."""

    path: Path
    content: bytes


def named_file(file: Path | None = None, *, environ: Mapping[str, str] | None = None) -> Path | None:
    """The settings file that an option or `OPENMEMORY_CONFIG` names, whatever the working folder; None if none is."""
    path = file or (os.environ if environ is None else environ).get(VARIABLE)
    return Path(path).absolute() if path else None


def read_settings_file(path: Path) -> SettingsFile:
    """Reads a file that the user named. `/dev/null` is one without settings.

    Raises:
        SetupError: it does not exist or cannot be read.
    """
    if not path.is_file() and str(path) != os.devnull:
        raise SetupError(f"{path}: no such file")
    try:
        return SettingsFile(path, path.read_bytes())
    except OSError as error:
        raise SetupError(f"{path}: cannot be read: {error.strerror}") from None


def flat_entries(file: SettingsFile, sections: Container[str]) -> dict[tuple[str, ...], Any]:
    """Returns what a file sets: ('http', 'cors_origins') → value. `sections`: the tables that are sections.

    Raises:
        SetupError: it is not valid TOML.
    """
    try:
        document = tomllib.loads(file.content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SetupError(f"{file.path}: not valid TOML: {error}") from None
    except RecursionError:
        raise SetupError(f"{file.path}: not valid TOML: its values are nested too deeply") from None
    flat: dict[tuple[str, ...], Any] = {}
    for name, value in document.items():
        if isinstance(value, dict) and name in sections:
            flat |= {(name, inner): item for inner, item in value.items()}
        else:
            flat[name,] = value
    return flat
