"""Texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

PACKAGED = "all-MiniLM-L6-v2-int8"
"""Name of the model that comes with the service."""

Vector = npt.NDArray[np.float32]
"""One embedding, shape (dimension,), of unit length."""

Vectors = npt.NDArray[np.float32]
"""Embeddings, shape (texts, dimension), rows of unit length."""

Tokens = npt.NDArray[np.int8]
"""Embeddings of a question's tokens, as far as they count (`embeddings.tokens`), shape (tokens, dimension): 127
times unit vectors, rounded; zeros for numbers. There may be none."""

Codes = npt.NDArray[np.uint8]
"""Embeddings of a text's tokens, as far as they count, shape (tokens, CODE): a bit for the sign of each number. A text
may have none."""

CODE = 48
"""Bytes of a token. Whoever changes what they are made by empties the table `embedding_tokens`: its rows do not say
what made them."""


class EmbedderUnavailable(Exception):
    """The model does not load, does not answer in time, or answers garbage. Text search must do."""


class Question(NamedTuple):
    """What a model makes of a search query; `tokens` are None where it tells nothing of tokens."""

    vector: Vector
    tokens: Tokens | None


class Document(NamedTuple):
    """What a model makes of a stored text: vectors of its `windows`, shape (windows, dimension), and of its tokens."""

    windows: Vectors
    tokens: Codes | None


class Embedder(Protocol):
    """Every method raises `EmbedderUnavailable` for whatever the model or provider throws."""

    model: str
    """Stable name of the model; part of the collection's name and of the key of stored vectors."""

    cutting: str
    """Name of the way in which long texts are cut; stored with their vectors (`windows.stored_as`)."""

    tokenwise: bool
    """Whether what it makes of texts has `tokens`."""

    async def dimension(self) -> int:
        """Length of a vector; asked of the model, never assumed."""
        ...

    async def query(self, text: str) -> Question:
        """Embed one search query. Goes before waiting documents."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[Document]:
        """Embed stored texts in batches off the event loop."""
        ...

    async def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut, which embeds nothing."""
        ...

    async def close(self) -> None:
        """Release threads, sessions and connections."""
        ...
