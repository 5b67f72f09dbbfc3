"""The rows that a search looks through: the memories, or the passages of conversations."""

from __future__ import annotations

from typing import Any, NamedTuple

from openmemory.index.models import ItemKind
from openmemory.memories.models import Memory
from openmemory.sources.models import Passage


class Corpus(NamedTuple):
    """The rows of one table. All have the columns that searches use: owner, thread, text, words, state and times."""

    kind: ItemKind
    rows: Any
    """The mapped class."""


MEMORIES = Corpus(ItemKind.MEMORY, Memory)
PASSAGES = Corpus(ItemKind.PASSAGE, Passage)
