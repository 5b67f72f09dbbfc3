"""Runs a command while no other one runs that was started like this in the same folder.

    python tools/one_at_a_time.py make .venv/.dev

Two `make` at once would otherwise set up `.venv` over each other.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path


def main(command: list[str]) -> None:
    """Wait for the lock of this folder, and become the command, which keeps the lock until it and its children end."""
    folder = os.open(Path(__file__).parent, os.O_RDONLY)
    os.set_inheritable(folder, True)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Another make is setting up .venv; waiting for it ...", file=sys.stderr, flush=True)
        fcntl.flock(folder, fcntl.LOCK_EX)
    os.execvp(command[0], command)  # noqa: S606 - make names the command


if __name__ == "__main__":
    main(sys.argv[1:])
