"""The projects that the user has confirmed for folders. Imports little: see `openmemory.cli.hook`.

Each is a file of its own in the user's configuration, so that two confirmations at once cannot lose one.
"""

from __future__ import annotations

import json
import os
import sys


def confirmed(folder: str) -> str | None:
    """The project that the user has confirmed for exactly this folder."""
    try:
        with open(_file(folder), encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError):  # there is none, or the user is asked again
        return None
    namespace = found.get("namespace") if isinstance(found, dict) and found.get("folder") == folder else None
    return namespace if isinstance(namespace, str) else None


def confirm(folder: str, namespace: str) -> None:
    """Remembers that the user wants this project in this folder.

    Raises:
        OSError: it cannot be written.
    """
    from pathlib import Path

    from openmemory.resilience.atomic_files import replacing

    path = Path(_file(folder))
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with replacing(path) as file:
        file.write(json.dumps({"folder": folder, "namespace": namespace}).encode())


def forget(folder: str) -> bool:
    """Forgets the project of a folder. Returns False if none was confirmed.

    Raises:
        OSError: it cannot be removed.
    """
    try:
        os.unlink(_file(folder))
    except FileNotFoundError:
        return False
    return True


def _file(folder: str) -> str:
    from hashlib import sha256

    home = "~/Library/Application Support" if sys.platform == "darwin" else os.environ.get("XDG_CONFIG_HOME", "")
    if not home.startswith(("/", "~")):  # a relative one would lie in the folder itself
        home = "~/.config"
    name = f"{sha256(os.fsencode(folder)).hexdigest()[:32]}.json"
    return os.path.join(os.path.expanduser(home), "openmemory", "projects", name)
