"""Estimates the tokens of a text for a budget: as many as the tokenizers of current language models make, or more.

The words of ASCII are cut by the WordPiece tokenizer of the packaged model. It reads over capitals, blanks, very long
words and most other scripts, for which a part is added. The parts come from a comparison with cl100k and o200k on
English conversations and articles, source code, and the same sentences in 92 languages (decision 29).
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import ceil

NAME = "wordpiece"
"""The name of the count in an answer."""

_WORDS = re.compile(r"[0-9]+|[A-Za-z]+|[^A-Za-z0-9\s]")
_CAPITAL = 0.6
"""The tokens that are added for a word with a capital letter. It may be a rare name."""
_DIGITS = 3
"""The most digits that one token holds."""
_LONG = 100
"""The length of a word that the model does not read. Language models read at least two of its letters at a time."""
_CAPITALS = re.compile(r"[A-Z]{3,}")
_BLANKS = re.compile(r"[ \t]{2,}")
_TABS = 16
"""The most tabs that one token holds. Of spaces, a token can hold more."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_OTHERS = re.compile(r"[^\x00-\x7f]")
_SCRIPTS = (
    (re.compile(r"[\u0530-\u058f]"), 2.2),  # Armenian
    (re.compile(r"[\u0370-\u03ff\u0590-\u06ff\u0750-\u077f]"), 1.35),  # Greek, Hebrew, Arabic
    (re.compile(r"[\u0080-\u07ff]"), 1.15),  # Cyrillic, letters with accents
    (re.compile(r"[\u3000-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff00-\uffef]"), 1.5),
)
"""The tokens of a letter of each script. Any other letter counts as one token for each of its bytes, the maximum."""


def count(text: str) -> int:
    """The number of tokens of a text. That of several lines is the sum of those of its lines."""
    return sum(_of_line(line) for line in text.split("\n")) + text.count("\n")


@lru_cache(maxsize=1024)
def _of_line(line: str) -> int:
    if not line:
        return 0
    more = 0.0
    if not line.isascii():
        more += sum(map(_of_letter, _OTHERS.findall(line)))
        line = _OTHERS.sub(" ", line)
    more += sum(len(match) / 3 for match in _CAPITALS.findall(line))
    more += sum(ceil(len(match) / _TABS) for match in _BLANKS.findall(line)) + len(_CONTROLS.findall(line))
    return ceil(more + sum(map(_of_word, _WORDS.findall(line))))


@lru_cache(maxsize=16_384)
def _of_word(word: str) -> float:
    # A service with another embedder does not load the packaged one before the first pack.
    from openmemory.embeddings.local import count_tokens

    if len(word) >= _LONG:
        return len(word) / 2
    if word.isdigit():
        return max(count_tokens(word), ceil(len(word) / _DIGITS))
    capital = word.isalpha() and not word.islower()
    return count_tokens(word) + (_CAPITAL if capital else 0)


@lru_cache(maxsize=4_096)
def _of_letter(letter: str) -> float:
    cost = next((size for script, size in _SCRIPTS if script.match(letter)), None)
    return len(letter.encode("utf-8", "replace")) if cost is None else cost


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
    prefix = text[:low]
    at_word = prefix.rfind(" ")
    prefix = prefix[:at_word] if at_word > len(prefix) // 2 else prefix
    return prefix.rstrip() + "…" if low else ""
