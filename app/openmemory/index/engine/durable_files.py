"""Small files that are either the old or the new one, whatever happens while they are written."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(file: Path, content: bytes) -> None:
    """Put `content` in place of the file, in one step and durably."""
    draft = file.with_name(file.name + ".new")
    with draft.open("wb") as written:
        written.write(content)
        written.flush()
        os.fsync(written.fileno())
    draft.replace(file)
