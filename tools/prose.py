"""Finds what makes English hard to read: docstrings with a bad opening, and words that the glossary has replaced.

    python tools/prose.py

It knows a short list, not style. `make check` runs it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "app" / "openmemory"
OPENINGS = re.compile(r"(What|Whether|Who|Whom|Whose|How|Why|So)\b(?! to\b)")
"""A docstring says what something returns or does; these tell a story about it."""

SHOWN = {
    "How an answer was found",
    "What became of a text that was to be remembered",
    "What became of one text",
    "Why a result stands where it stands",
}
"""Beginnings of docstrings that clients of MCP see in the list of tools, which stays as it is."""

WORDS = {"so-manieth": "evenly", "nobody's business": "private", "lowers the flag": "deletes the outbox entry"}
"""Words that are not used, and what to say instead."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that stand as statements, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def problems() -> Iterator[str]:
    """One line for each finding."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, said in docstrings(path):
            if (found := OPENINGS.match(said)) and not any(map(said.startswith, SHOWN)):
                yield f"{path.relative_to(ROOT)}:{line}: begins with {found[1]!r}: say what it returns or does"
    for path in sorted({*PACKAGE.rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")}):
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for word, better in WORDS.items():
                if word in text:
                    yield f"{path.relative_to(ROOT)}:{number}: {word!r}: say {better!r}"


def main() -> None:
    """Print the findings; exit 1 if there are some."""
    found = list(problems())
    for line in found:
        print(line)
    if found:
        sys.exit(1)


if __name__ == "__main__":
    main()
