"""The embedder interface: texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

PACKAGED = "all-MiniLM-L6-v2-int8"
"""The name of the model that comes with the service."""

Vector = npt.NDArray[np.float32]
"""One embedding, shape (dimension,), of unit length."""

Vectors = npt.NDArray[np.float32]
"""Embeddings, shape (texts, dimension), rows of unit length."""

Tokens = npt.NDArray[np.int8]
"""Embeddings of a question's tokens that count (`embeddings.tokens`), shape (tokens, dimension): unit vectors times
127, rounded, and zeros for numbers. May be empty."""

Codes = npt.NDArray[np.uint8]
"""Embeddings of a text's tokens that count, shape (tokens, CODE): one bit for the sign of each number. May be empty."""

CODE = 48
"""Bytes per token. A change to the encoding must empty the table `embedding_tokens`: its rows do not record how they
were encoded."""


class EmbedderUnavailable(Exception):
    """The model does not load, does not answer in time, or returns invalid vectors. Search falls back to text."""


class QueryEmbedding(NamedTuple):
    """The embedding of a search query. `tokens` is None if the model returns no token vectors. `unread`: most of the
    query is unknown to the model, so that the vector is meaningless."""

    vector: Vector
    tokens: Tokens | None
    unread: bool = False


class TextEmbedding(NamedTuple):
    """The embedding of a stored text: the vectors of its `chunks`, shape (chunks, dimension), and of its tokens."""

    chunks: Vectors
    tokens: Codes | None


class Embedder(Protocol):
    """The embedder interface. Every method raises `EmbedderUnavailable` for any error of the model or provider."""

    model: str
    """The stable name of the model. Part of the collection's name and of the key of stored vectors."""

    chunking: str
    """The name of the method that cuts long texts into chunks. Stored with their vectors (`chunks.stored_as`)."""

    tokenwise: bool
    """True if its embeddings have `tokens`."""

    async def dimension(self) -> int:
        """The length of a vector, always read from the model."""
        ...

    async def query(self, text: str) -> QueryEmbedding:
        """Embeds one search query. Takes priority over waiting documents."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embeds stored texts in batches, off the event loop."""
        ...

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text. Embeds nothing."""
        ...

    async def close(self) -> None:
        """Releases threads, sessions and connections."""
        ...
