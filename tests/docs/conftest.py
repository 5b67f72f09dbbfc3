"""The documentation as its tests read it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "app" / "openmemory" / "ARCHITECTURE.md",
]
"""Every page for people."""

FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str


class Page(NamedTuple):
    """A page: its path in the project, its text without fenced blocks, and those blocks."""

    path: Path
    prose: str
    blocks: list[Block]

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


def read(path: Path) -> Page:
    """Returns the page of a file."""
    text = path.read_text(encoding="utf-8")
    return Page(path, FENCED.sub("", text), [Block(*match) for match in FENCED.findall(text)])


@pytest.fixture(scope="session")
def pages() -> list[Page]:
    """Every page."""
    return [read(path) for path in PAGES]
