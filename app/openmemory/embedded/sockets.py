"""Private folders for unix sockets: in the data folder, or elsewhere if that path is too long."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

from openmemory.embedded.account import Account, obstacle
from openmemory.errors import SetupError

PORT = 5432
"""Only a part of the socket's name. Nothing listens on TCP."""

_FILE = f".s.PGSQL.{PORT}"
_MAX_PATH_BYTES = 100
"""The limit of a socket's path in bytes on all platforms (104 on macOS and 108 on Linux, with the final zero)."""


def socket_folder(data_folder: Path, account: Account | None, purpose: str = "") -> Path:
    """Returns the folder of a data folder's socket, for PostgreSQL or another `purpose`. The result never changes.

    Raises:
        SetupError: no folder has a path that is short enough.
    """
    inside = data_folder / f"run{purpose}"
    if _fits(inside):
        return inside
    digest = hashlib.sha256(os.fsencode(data_folder)).hexdigest()[:16]
    name = f"openmemory-{os.geteuid()}-{digest}{purpose}"
    for parent in _temporary_folders():
        if _fits(parent / name) and (account is None or obstacle(parent, account) is None):
            return parent / name
    raise SetupError(f"{data_folder}: path too long for a unix socket; choose a shorter data_dir or TMPDIR")


def create(folder: Path, account: Account | None) -> None:
    """Create the folder, accessible only to the server's account.

    Raises:
        SetupError: another account created it, or others can enter it.
    """
    uid = account.uid if account else os.geteuid()
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        status = folder.lstat()
        ours = stat.S_ISDIR(status.st_mode) and status.st_uid in {uid, os.geteuid()}
        if not ours or stat.S_IMODE(status.st_mode) & 0o077:
            raise SetupError(f"{folder}: must be a private folder of this account; remove it") from None
    if account:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)


def remove(folder: Path, *, names: Sequence[str] = (_FILE, f"{_FILE}.lock")) -> None:
    """Remove the folder and any files that a killed server left in it. Does nothing if it does not exist."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    if folder.is_dir():
        folder.rmdir()


def _temporary_folders() -> list[Path]:
    try:
        return [Path(tempfile.gettempdir()), Path("/tmp")]  # noqa: S108 - ownership is checked in `create`
    except FileNotFoundError:  # none is writable
        return []


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder / _FILE)) < _MAX_PATH_BYTES
