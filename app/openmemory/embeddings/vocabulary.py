"""The vocabulary of the packaged model."""

from __future__ import annotations

from functools import cache

from tokenizers import Tokenizer

from openmemory.embeddings.local import TOKENIZER


@cache
def vocabulary() -> dict[str, int]:
    """The tokens by their ids. Whole words are ordered by frequency, the most common first."""
    return dict(Tokenizer.from_file(str(TOKENIZER.verified())).get_vocab())
