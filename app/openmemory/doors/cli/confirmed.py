"""Remembers what the user confirmed for folders: the project that a file names, and the settings file as it is.

Imports little: see `openmemory.doors.cli.hook`.

Each is a file of its own in the user's configuration, so that two confirmations at once cannot lose one.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Literal

Confirmable = Literal["namespace", "settings"]
"""`namespace`: the name of a project. `settings`: the SHA-256 of a settings file."""

_FOLDERS = {"namespace": "projects", "settings": "settings"}


def confirmed(folder: str, what: Confirmable = "namespace") -> str | None:
    """Returns what the user has confirmed for exactly this folder; None if nothing."""
    try:
        with open(_file(folder, what), encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError):  # there is none, or the user is asked again
        return None
    value = content.get(what) if isinstance(content, dict) and content.get("folder") == folder else None
    return value if isinstance(value, str) else None


def confirm(folder: str, value: str, what: Confirmable = "namespace") -> None:
    """Remembers that the user wants this project, or these settings, in this folder.

    Raises:
        OSError: it cannot be written.
    """
    from pathlib import Path

    from openmemory.resilience.atomic_files import replacing

    path = Path(_file(folder, what))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path) as file:
        file.write(json.dumps({"folder": folder, what: value}).encode())


def forget(folder: str, what: Confirmable = "namespace") -> bool:
    """Forgets what was confirmed for a folder. Returns False if nothing was.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        os.unlink(_file(folder, what))
    except FileNotFoundError:
        return False
    return True


def _file(folder: str, what: Confirmable) -> str:
    from hashlib import sha256

    home = "~/Library/Application Support" if sys.platform == "darwin" else os.environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith(("/", "~")):  # a relative one would lie in the folder itself
        home = "~/.config"
    name = f"{sha256(os.fsencode(folder)).hexdigest()[:32]}.json"
    return os.path.join(os.path.expanduser(home), "openmemory", _FOLDERS[what], name)
