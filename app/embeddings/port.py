"""Texts in, unit vectors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

PACKAGED = "all-MiniLM-L6-v2-int8"
"""Name of the model that comes with the service."""

Vectors = npt.NDArray[np.float32]
"""Embeddings, shape (texts, dimension), rows of unit length."""


class EmbedderUnavailable(Exception):
    """The model does not load, does not answer in time, or answers garbage. Text search must do."""


class Embedder(Protocol):
    """Every method raises `EmbedderUnavailable` for whatever the model or provider throws."""

    model: str
    """Stable name of the model; part of the collection's name and of the key of stored vectors."""

    cutting: str
    """Name of the way in which long texts are cut; stored with their vectors (`windows.stored_as`)."""

    async def dimension(self) -> int:
        """Length of a vector; asked of the model, never assumed."""
        ...

    async def query(self, text: str) -> npt.NDArray[np.float32]:
        """Embed one search query, shape (dimension,). Goes before waiting documents."""
        ...

    async def documents(self, texts: Sequence[str]) -> list[Vectors]:
        """Embed stored texts in batches off the event loop: for each its windows, shape (windows, dimension)."""
        ...

    async def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut, which embeds nothing."""
        ...

    async def close(self) -> None:
        """Release threads, sessions and connections."""
        ...
