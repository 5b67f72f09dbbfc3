"""Finds what makes English hard to read: docstrings with a bad opening, long sentences on pages, and replaced words.

    python tools/prose.py

It knows short lists, not style. `make check` runs it.
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

PAGE_WORDS = {
    "anew": "again",
    "orders to assistants": "prompt injection",
    "fills no page": "irrelevant memories do not fill up an answer",
    "is none of": "is not one of",
    "mended": "fixed",
    "puts aside": "archives",
    "put aside": "archived",
    "reckon": "expect",
    "stands in": "is in",
    "tells of": "describes",
    "twin": "exact duplicate",
    "very statement": "statement",
}
"""Words that are not used on pages, and what to say instead."""

MAX_WORDS = 40
"""Words of a sentence on a page; a term in `code` counts as one."""

WIDEST = 120
"""Characters of a line of a page outside tables."""

BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) |\|)")
SENTENCE = re.compile(r"(?<=[.!?:;*])\s+(?=[A-Z*`\[(“\"])|;\s")


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that stand as statements, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()


def pages() -> list[Path]:
    """The documentation for people."""
    return sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), PACKAGE / "ARCHITECTURE.md"})


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """The sentences of a page that are too long, with the line on which their paragraph begins."""
    plain = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    start = 0
    for gap in [*PARAGRAPH.finditer(plain), None]:
        paragraph = plain[start : gap.start() if gap else None]
        for sentence in () if paragraph.lstrip().startswith("|") else SENTENCE.split(" ".join(paragraph.split())):
            if len(re.sub(r"`[^`]*`", "code", sentence.removeprefix("- ")).split()) > MAX_WORDS:
                yield plain.count("\n", 0, start) + 1, sentence
        start = gap.end() if gap else len(plain)


def page_problems() -> Iterator[str]:
    """One line for each finding on a page."""
    for path in pages():
        name, text = path.relative_to(ROOT), path.read_text(encoding="utf-8")
        for number, sentence in long_sentences(text):
            yield f"{name}:{number}: more than {MAX_WORDS} words: {sentence[:60]} …"
        for number, line in enumerate(text.splitlines(), 1):
            if len(line) > WIDEST and not line.startswith("|"):
                yield f"{name}:{number}: more than {WIDEST} characters"
            for word, better in PAGE_WORDS.items():
                if re.search(rf"\b{word}\b", line):
                    yield f"{name}:{number}: {word!r}: say {better!r}"


def problems() -> Iterator[str]:
    """One line for each finding."""
    yield from page_problems()
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, said in docstrings(path):
            if (found := OPENINGS.match(said)) and not any(map(said.startswith, SHOWN)):
                yield f"{path.relative_to(ROOT)}:{line}: begins with {found[1]!r}: say what it returns or does"
    for path in sorted({*PACKAGE.rglob("*.py"), *pages()}):
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
