"""The key of the service, with which the keys of users are encrypted."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

from openmemory.errors import SetupError
from openmemory.objects.encryption import KEY_BYTES

_FILE = "objects.key"


def service_key(folder: Path) -> bytes:
    """The key in the data folder. It is made at its first use, and never replaced.

    Raises:
        SetupError: the file cannot be read or written, or holds no key.
    """
    path = folder / _FILE
    try:
        if not path.exists():
            _make(path)
        key = path.read_bytes()
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}") from error
    if len(key) != KEY_BYTES:
        raise SetupError(f"{path} is damaged: it must have {KEY_BYTES} bytes. Restore it from a backup")
    return key


def _make(path: Path) -> None:
    """Makes the key, unless another process is faster. The file appears with its content."""
    descriptor, draft = tempfile.mkstemp(prefix=f".{_FILE}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(draft, path)
    finally:
        Path(draft).unlink()
