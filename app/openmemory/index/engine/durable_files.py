"""Replaces small files atomically: a file is either the old or the new one, even after a crash."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(file: Path, content: bytes) -> None:
    """Replaces the file with `content`, atomically and durably."""
    draft = file.with_name(file.name + ".new")
    with draft.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
    draft.replace(file)
