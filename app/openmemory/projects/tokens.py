"""Counts tokens of a text for a budget: never fewer than the tokenizers of current language models make of it.

The words of ASCII are counted with the WordPiece tokenizer of the packaged model. It reads over blanks, capitals, very
long words and most other scripts, which therefore count by their characters.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil

NAME = "wordpiece"
"""The name of the count in an answer."""

_LONG = re.compile(r"[^\s]{40,}")
"""Keys, hashes and the like, which language models read two letters at a time or fewer."""
_CAPITALS = re.compile(r"[A-Z]{3,}")
_WORDS = re.compile(r"[a-z0-9]+|[^a-z0-9\s]")
"""The words of ASCII as the model cuts them: each of the other characters stands alone."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_BLANKS = re.compile(r"[ \t]{2,}")
_OTHERS = re.compile(r"[^\x00-\x7f]")
_CJK = re.compile(r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uff00-\uffef]")


def count(text: str) -> int:
    """The number of tokens of a text. That of several lines is the sum of those of its lines."""
    return sum(_of_line(line) for line in text.split("\n")) + text.count("\n")


@lru_cache(maxsize=1024)
def _of_line(line: str) -> int:
    if not line:
        return 0
    more = 0.0
    if not line.isascii():
        others = _OTHERS.findall(line)
        for character in others:
            size = len(character.encode("utf-8", "replace"))
            more += 1.5 if _CJK.match(character) else 1 if size == 2 else size
        line = _OTHERS.sub(" ", line)
    for found in _LONG.findall(line):
        more += len(found) * 0.5
    more += sum(len(found) / 3 for found in _CAPITALS.findall(line))
    more += len(_BLANKS.findall(line))
    if _CONTROLS.search(line):  # the model reads over them, and joins what is on both sides
        return _of_word(line) + ceil(more)
    return sum(map(_of_word, _WORDS.findall(line.lower()))) + ceil(more)


@lru_cache(maxsize=16_384)
def _of_word(word: str) -> int:
    # A service with another embedder does not load the packaged one before the first pack.
    from openmemory.embeddings.local import count_tokens

    return count_tokens(word)


def cut(text: str, limit: int) -> str:
    """The beginning of a text that has at most this many tokens, with an ellipsis if it is not the whole."""
    if count(text) <= limit:
        return text
    low, high = 0, len(text)
    while low < high:  # the longest that fits
        middle = (low + high + 1) // 2
        if count(text[:middle].rstrip() + "…") <= limit:
            low = middle
        else:
            high = middle - 1
    kept = text[:low]
    at_word = kept.rfind(" ")
    kept = kept[:at_word] if at_word > len(kept) // 2 else kept
    return kept.rstrip() + "…" if low else ""
