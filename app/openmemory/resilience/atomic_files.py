"""Replaces files atomically: a file is either the old or the complete new one, even after a crash."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast


@contextmanager
def replacing(file: Path, *, like: Path | None = None, private: bool = False) -> Iterator[BinaryIO]:
    """Opens a draft that replaces the file when the block ends, and that is deleted if it fails.

    The file gets the mode and owner of `like`. If there is no such file, only this account may read it. `private`: none
    but the owner may read it in any case.

    Raises:
        OSError: it cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as written:
            yield cast(BinaryIO, written)
            written.flush()
            os.fsync(written.fileno())
        if like is not None and like.exists():
            status = like.stat()
            draft.chmod(stat.S_IMODE(status.st_mode) & (0o700 if private else 0o7777))
            if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
                os.chown(draft, status.st_uid, status.st_gid)
        draft.replace(file)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
