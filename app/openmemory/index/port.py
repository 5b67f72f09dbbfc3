"""The vector index as the product sees it: points in, ids and scores out. It knows neither SQL nor embedders."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.access.rules import ALL, Rules
from openmemory.index.sync.entries import Entries

Vector = npt.NDArray[np.float32]
"""One embedding, shape (dimension,), unit length, finite."""

Vectors = npt.NDArray[np.float32]
"""The embeddings of a text's windows, shape (windows, dimension), at least one, each as a `Vector`."""

NOBODY = UUID(int=0)
"""A user, or an item, that cannot exist."""

NO_VECTORS: Vectors = np.empty((0, 0), dtype=np.float32)
"""The vectors of an item that has none yet; no index takes them."""


@dataclass(slots=True, kw_only=True)
class Document:
    """What an item says, when, and whose it is in words: for the model, and for those who read a server's points."""

    text: str
    user_name: str
    created_at: datetime
    updated_at: datetime
    categories: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Point:
    """One searchable item. `user` is `users.id`; `text_hash` is that of the text whose windows' `vectors` they are.

    Its `document` is read where it is needed: where the text has to be embedded, and for an index that keeps it. Not
    frozen, for there may be a hundred thousand in a row: making frozen ones takes twice as long.
    """

    id: UUID
    user: UUID
    app: UUID
    namespace: str
    kind: str
    revision: int
    text_hash: str
    categories: Sequence[UUID] = ()
    document: Document | None = None
    vectors: Vectors = field(default_factory=lambda: NO_VECTORS)


def windows_of(point: Point) -> int:
    """How many vectors a point has."""
    return len(point.vectors)


@dataclass(frozen=True, slots=True)
class Filter:
    """What the index can decide itself. Empty tuples mean "any"; everything else is decided by Postgres."""

    user: UUID
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    apps: tuple[UUID, ...] = ()
    excluded: tuple[UUID, ...] = field(default=())
    """Ids of points never to return."""
    rules: Rules = ALL
    """Which of them the app that asks may read."""
    ids: tuple[UUID, ...] | None = None
    """The points among which to look; None means all."""

    @property
    def nothing(self) -> bool:
        """Whether no point can meet it."""
        return self.ids == () or self.rules.smallest().nothing


class Watermark(NamedTuple):
    """How far a collection has followed PostgreSQL.

    `epoch` names the generation that the collection was filled for. `sequence` grows with what is delivered.
    """

    epoch: UUID
    sequence: int


Connected = Callable[[Watermark | None], Awaitable[Watermark | None]]
"""Called with a collection's watermark whenever an index has connected to it, before it answers anything.

Returns the watermark that the collection has to begin with, if it is a new one.
"""


class Hit(NamedTuple):
    """A candidate: `score` is the cosine similarity of its best window in [-1, 1]."""

    id: UUID
    score: float


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """How the index is: `collection` names model and dimension; `points` counts what it holds."""

    engine: str
    version: str
    collection: str
    dimension: int
    points: int


class IndexUnavailable(Exception):
    """The index does not answer, answers garbage or refuses: text search must do. Never shown to a user."""


class VectorIndex(Protocol):
    """Every method raises `IndexUnavailable` for whatever the engine throws, and when the index was closed.

    A vector of another dimension, not finite or of length zero, or a point without one, is the caller's mistake:
    `ValueError`, nothing written.
    After a failed `open` the next call of any method tries again.
    """

    async def keeps_documents(self) -> bool:
        """Whether `upsert` needs the points' documents, which others may read in this index."""
        ...

    async def open(self) -> None:
        """Connect, and create the collection with its payload indexes if it is missing.

        An existing collection of another dimension is never touched and never searched: the name carries
        model and dimension, so it cannot be met under the same name unless somebody tampered with it.
        """
        ...

    async def upsert(self, points: Sequence[Point]) -> None:
        """Write the points; the same id replaces. Acknowledged when searchable; a failure may leave some written."""
        ...

    async def delete(self, ids: Sequence[UUID]) -> None:
        """Remove the points; unknown ids are fine."""
        ...

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        """The nearest points, best first, at most `limit`; of each its best window counts."""
        ...

    def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[Entries, None]:
        """All entries in ascending order of id, in pages (memory stays flat), of one user or of all.

        A point that somebody else wrote appears as an entry of user 0 at revision 0: it is wrong whatever it holds.
        """
        ...

    async def count(self, user: UUID | None = None) -> int:
        """How many points there are, exactly."""
        ...

    async def watermark(self) -> Watermark | None:
        """The watermark of the collection; None if it never got one."""
        ...

    async def set_watermark(self, watermark: Watermark) -> None:
        """Write the watermark the way points are written, so that what loses points loses it too.

        It is no entry, counts as no point, and no search finds it.
        """
        ...

    async def activate(self) -> None:
        """Make this collection the one that the alias names, once it is complete: the moment a new model takes over."""
        ...

    async def drop(self) -> None:
        """Remove the collection with all that it holds, and close. A collection that the alias names stays."""
        ...

    async def flush(self) -> None:
        """Make everything acknowledged so far survive a power cut, where the engine leaves that to us."""
        ...

    async def status(self) -> IndexStatus:
        """Version and size, for health and doctor."""
        ...

    async def close(self) -> None:
        """Flush and release; calling it twice is fine."""
        ...
