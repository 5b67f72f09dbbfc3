"""The unprivileged account that the built-in PostgreSQL runs as if root started the service."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path

from openmemory.errors import SetupError


@dataclass(frozen=True, slots=True)
class Account:
    """An operating system account."""

    uid: int
    gid: int
    name: str


def server_account() -> Account | None:
    """Returns `nobody` if this process is root, because PostgreSQL refuses to run as root. None: no other account."""
    if os.geteuid() != 0:
        return None
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise SetupError(
            "The built-in PostgreSQL cannot run as root and there is no account 'nobody': "
            "start OpenMemory as an ordinary user or set database.url"
        ) from None
    return Account(entry.pw_uid, entry.pw_gid, entry.pw_name)


def obstacle(path: Path, account: Account) -> Path | None:
    """Returns the outermost existing folder, up to and including `path`, that the account cannot enter, or None."""
    real = path.resolve()
    for folder in (*reversed(real.parents), real):
        try:
            status = folder.stat()
        except FileNotFoundError:
            return None
        if status.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return folder
    return None


def owner_name(path: Path) -> str:
    """Returns the owner of the path, by name if there is one."""
    uid = path.stat().st_uid
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"
