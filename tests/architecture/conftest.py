"""The project's own files, as the tests of this folder look at them."""

from __future__ import annotations

import os
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return Path(__file__).parents[2]


@pytest.fixture(scope="session")
def pyproject(root: Path) -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def tree(root: Path) -> dict[str, str]:
    """Every text file that is, or would be, committed: its path in the project → its text."""
    ignored = [".git", *(line.rstrip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").splitlines())]

    def kept(names: list[str]) -> list[str]:
        return [name for name in names if not any(fnmatch(name, pattern) for pattern in ignored)]

    found = {}
    for folder, folders, files in os.walk(root):
        folders[:] = kept(folders)
        for file in (Path(folder, name) for name in kept(files)):
            try:
                found[file.relative_to(root).as_posix()] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    assert "app/openmemory/config/settings.py" in found
    return found
