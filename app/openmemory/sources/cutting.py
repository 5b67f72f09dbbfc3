"""Cuts the text of a file into passages: Markdown by its headings, code by its indentation, the rest by paragraphs.

Pure functions. A passage keeps its lines as they are. Paths and line numbers stay out of its text, so that a passage
that only moved is the same passage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from openmemory.resilience.time_budget import TimeBudget
from openmemory.sources.models import PassageKind

LONGEST = 1_200
"""The number of characters of a passage, about 300 tokens. One longer line is cut."""

SHORTEST = 200
"""The number of characters from which a passage of code is not joined with the next block."""

_FULL = LONGEST - SHORTEST
"""The number of characters from which nothing more is joined to a passage of other texts, or to a part of a method."""

LANGUAGES = {
    "bash": "sh bash zsh", "c": "c h", "cpp": "cc cpp cxx hh hpp hxx", "csharp": "cs", "css": "css scss less",
    "go": "go", "html": "html htm xhtml vue svelte", "java": "java", "javascript": "js jsx mjs cjs", "json": "json",
    "kotlin": "kt kts", "lua": "lua", "markdown": "md markdown mdx", "php": "php", "python": "py pyi",
    "restructuredtext": "rst", "ruby": "rb", "rust": "rs", "scala": "scala", "sql": "sql", "swift": "swift",
    "text": "txt text log", "toml": "toml", "typescript": "ts tsx mts cts", "xml": "xml svg", "yaml": "yaml yml",
    "csv": "csv tsv", "ini": "ini cfg conf properties", "make": "mk", "docker": "dockerfile", "proto": "proto",
    "dart": "dart", "elixir": "ex exs", "haskell": "hs", "r": "r", "perl": "pl pm", "zig": "zig",
}  # fmt: skip
"""The languages by the endings of file names."""

_BY_ENDING = {ending: language for language, endings in LANGUAGES.items() for ending in endings.split()}
_BY_NAME = {"makefile": "make", "dockerfile": "docker", "readme": "text", "license": "text", "changelog": "text"}
_TEXTS = frozenset({"markdown", "restructuredtext", "text", "html", "csv"})
_FENCE = re.compile(r"\s*(```+|~~~+)")
_NO_TITLE = ("@", "#", "//", "/*", "*", "--", '"""', "'''", "[")
"""The beginnings of lines of code that do not name what follows: decorators, comments and attributes."""
_LEVELS = 6
_CLOSES = ")]}"
_MAX_TITLE = 100
_MAX_DEPTH = 20
_DEPTH_OF_PARTS = 2
"""The depth from which parts are those of a function: modules have classes, and these have methods."""


class FilePiece(NamedTuple):
    """A passage of a file: its text, its lines from 1, and the headings above it."""

    content: str
    first_line: int
    last_line: int
    heading: str | None = None


def language_of(path: str) -> str | None:
    """The language of a file, by its name; None if it is unknown."""
    name = path.rpartition("/")[2].lower()
    stem, dot, ending = name.rpartition(".")
    return _BY_ENDING.get(ending if dot and stem else "") or _BY_NAME.get(stem or name) or _BY_NAME.get(name)


def kind_of(language: str | None) -> PassageKind:
    """The kind of the passages of a file in this language."""
    return PassageKind.TEXT if language is None or language in _TEXTS else PassageKind.CODE


def pieces(text: str, language: str | None, budget: TimeBudget | None = None) -> list[FilePiece]:
    """The passages of a text, in order. Blank lines between them belong to none.

    Raises:
        OutOfTimeError: the budget is used up.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    parts: Iterable[FilePiece]
    if language == "markdown":
        sections = _sections(lines)
        parts = (piece for heading, start, some in sections for piece in _join_blocks(some, start, heading=heading))
    elif kind_of(language) is PassageKind.CODE:
        parts = _Code(lines).passages()
    else:
        parts = _join_blocks(lines, 1)
    result = list[FilePiece]()
    for piece in parts:
        if budget is not None:
            budget.check()
        if piece.content.strip():
            result.append(piece)
    return result


def _sections(lines: Sequence[str]) -> Iterator[tuple[str | None, int, list[str]]]:
    """The sections of a Markdown text: the headings above each, its first line, and its lines with its own heading."""
    above: list[tuple[int, str]] = []
    start, fence = 1, ""
    section: list[str] = []
    for number, line in enumerate(lines, 1):
        if match := _FENCE.match(line):
            mark = match[1][:3]
            fence = "" if fence == mark else fence or mark
        if not fence and (heading := _heading(line)) is not None:
            if section:
                yield _titles(title for _, title in above), start, section
            above = [*((depth, title) for depth, title in above if depth < heading[0]), heading]
            start, section = number, []
        section.append(line)
    yield _titles(title for _, title in above), start, section


def _heading(line: str) -> tuple[int, str] | None:
    """The level and the title of a heading of Markdown; None if the line is none. Signs that close it are left out."""
    rest = line.lstrip("#")
    level, title = len(line) - len(rest), rest.strip()
    closed = title.rstrip("#")
    if not 1 <= level <= _LEVELS or not closed or not rest[0].isspace():
        return None
    return level, (closed.rstrip() if closed[-1:].isspace() else title)[:200]


def _titles(above: Iterable[str]) -> str | None:
    """The heading of a passage: the last titles above it."""
    return " > ".join(title for title in [*above][-3:] if title) or None


class _Code:
    """Code, cut at blank lines: before the lines that are indented the least, and deeper where a part is too long.

    What is cut out of a longer part has the lines that open it as its heading, such as the class of a method.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._indents = [len(line) - len(line.lstrip()) if line.strip() else None for line in lines]
        self._sizes = list(accumulate((len(line) + 1 for line in lines), initial=0))

    def passages(self) -> Iterator[FilePiece]:
        """The passages, in order."""
        return self._cut(0, len(self._lines), (), 0)

    def _cut(self, start: int, end: int, above: tuple[str, ...], depth: int) -> Iterator[FilePiece]:
        """The passages of the lines from `start` up to `end`, which are too long for one."""
        indents = self._indents
        places = [place for place in range(start + 1, end) if self._begins(place)]
        first = next((indents[place] for place in range(start, end) if indents[place] is not None), None)
        if first is None:
            return
        least = min((indents[place] or 0 for place in places), default=0)
        if not places or depth > _MAX_DEPTH:
            yield from self._even(start, end, above)
            return
        if first < least:
            above = (*above, self._title(start, end))
        cuts = [start, *(place for place in places if indents[place] == least), end]
        # Methods stand alone. The parts of one method are joined.
        full = SHORTEST if depth < _DEPTH_OF_PARTS else _FULL
        piece_start = start
        for begin, after in pairwise(cuts):
            if self._size(piece_start, begin) >= full or self._size(piece_start, after) > LONGEST:
                yield from self._piece(piece_start, begin, above)
                piece_start = begin
            if self._size(begin, after) > LONGEST:
                yield from self._cut(begin, after, above, depth + 1)
                piece_start = after
        yield from self._piece(piece_start, end, above)

    def _begins(self, place: int) -> bool:
        """True if the line comes after a blank one, and closes nothing."""
        line = self._lines[place].lstrip()
        return bool(line) and line[0] not in _CLOSES and self._indents[place - 1] is None

    def _even(self, start: int, end: int, above: tuple[str, ...]) -> Iterator[FilePiece]:
        """Passages of lines without a better place to cut, of about the same length."""
        if any(len(line) > LONGEST for line in self._lines[start:end]):
            yield from _join_blocks(self._lines[start:end], start + 1, heading=_titles(above))
            return
        size = self._size(start, end)
        share = size / -(-size // LONGEST)
        piece_start = start
        for place in range(start, end):
            if self._size(piece_start, place + 1) > LONGEST or self._size(piece_start, place) >= share:
                yield from self._piece(piece_start, place, above)
                piece_start = place
        yield from self._piece(piece_start, end, above)

    def _size(self, start: int, end: int) -> int:
        return self._sizes[end] - self._sizes[start]

    def _piece(self, start: int, end: int, above: tuple[str, ...]) -> Iterator[FilePiece]:
        while start < end and self._indents[start] is None:
            start += 1
        while start < end and self._indents[end - 1] is None:
            end -= 1
        if start < end:
            yield FilePiece("\n".join(self._lines[start:end]), start + 1, end, _titles(above))

    def _title(self, start: int, end: int) -> str:
        """The line that opens a part, such as that of a class."""
        lines = (self._lines[place].strip() for place in range(start, end) if self._indents[place] is not None)
        line = next((line for line in lines if not line.startswith(_NO_TITLE)), "")
        return " ".join(line.rstrip("{:( ").split())[:_MAX_TITLE]


def _join_blocks(lines: Sequence[str], start: int, *, heading: str | None = None) -> Iterator[FilePiece]:
    """The blocks of some lines, joined until they have `_FULL` characters, none longer than `LONGEST`."""
    group: list[tuple[str, int, int]] = []
    size = 0
    for text, first, last in _blocks(lines, start):
        if group and (size + len(text) > LONGEST or size >= _FULL):
            yield _piece(group, heading)
            group, size = [], 0
        group.append((text, first, last))
        size += len(text) + 1
    if group:
        yield _piece(group, heading)


def _piece(blocks: Sequence[tuple[str, int, int]], heading: str | None) -> FilePiece:
    content, before = blocks[0][0], blocks[0][2]
    for text, first, last in blocks[1:]:
        # Parts of one long line stand next to each other.
        content += "\n" * max(1, first - before) + text if first > before else text
        before = last
    return FilePiece(content, blocks[0][1], blocks[-1][2], heading)


def _blocks(lines: Sequence[str], start: int) -> Iterator[tuple[str, int, int]]:
    """Runs of lines up to a blank line before an unindented one, or up to the longest size: text, first, last line."""
    block: list[str] = []
    first, size, blank = start, 0, False
    for number, line in enumerate(lines, start):
        begins = blank and not line[:1].isspace()
        if block and line.strip() and (begins or size + len(line) > LONGEST):
            yield "\n".join(block).rstrip(), first, first + len("\n".join(block).rstrip().split("\n")) - 1
            block, size = [], 0
        blank = not line.strip()
        if blank and not block:
            continue
        if not block:
            first = number
        if len(line) > LONGEST:
            for at in range(0, len(line), LONGEST):
                yield line[at : at + LONGEST], number, number
            continue
        block.append(line)
        size += len(line) + 1
    if block and (text := "\n".join(block).rstrip()):
        yield text, first, first + text.count("\n")
