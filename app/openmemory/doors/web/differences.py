"""The difference between two texts, word by word, for people."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

_WORDS = re.compile(r"\w+|[^\w\s]|\s+")

MOST_WORDS = 4_000
"""Above this number of words, whole lines are compared."""

MOST_LINES = 4_000
"""Above this number of lines, the texts are not compared."""

_AROUND = 160
"""Characters that are shown of an unchanged text before and after a change."""


class Piece(NamedTuple):
    """A part of a text: in both, only in the new one, or only in the old one."""

    kind: Literal["same", "added", "removed"]
    text: str


def difference(old: str, new: str) -> list[Piece]:
    """Returns the pieces of both texts in order. Long unchanged parts are shortened to what stands beside a change.

    Long texts are compared by lines, and texts of very many lines are shown as replaced.
    """
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    if max(len(before), len(after)) > MOST_WORDS:
        before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    if max(len(before), len(after)) > MOST_LINES:
        return [Piece("removed", old), Piece("added", new)]
    pieces: list[Piece] = []
    for tag, start, end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
        if tag == "equal":
            pieces.append(Piece("same", "".join(before[start:end])))
            continue
        if end > start:
            pieces.append(Piece("removed", "".join(before[start:end])))
        if new_end > new_start:
            pieces.append(Piece("added", "".join(after[new_start:new_end])))
    last = len(pieces) - 1
    return [
        Piece("same", _shorten(piece.text, first=place == 0, last=place == last)) if piece.kind == "same" else piece
        for place, piece in enumerate(pieces)
    ]


def _shorten(text: str, *, first: bool, last: bool) -> str:
    start, end = ("" if first else text[:_AROUND]), ("" if last else text[-_AROUND:])
    return text if len(text) <= 2 * _AROUND + 3 else f"{start} … {end}"
