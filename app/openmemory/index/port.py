"""The vector index interface: points in, ids and scores out. Independent of SQL and embedders."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.access.rules import ALL, Rules
from openmemory.index.entries import IndexEntries

Vector = npt.NDArray[np.float32]
"""One embedding, shape (dimension,), unit length, finite."""

Vectors = npt.NDArray[np.float32]
"""The embeddings of a text's chunks, shape (chunks, dimension), at least one, each as a `Vector`."""


class SparseVector(NamedTuple):
    """A vector with few numbers other than 0: the places of these, each once and in any order, and the numbers."""

    indices: npt.NDArray[np.uint32]
    values: npt.NDArray[np.float32]


NO_WORDS = SparseVector(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.float32))
"""The vector of a text without words."""

NOBODY = UUID(int=0)
"""The id of a user or item that cannot exist."""

NO_VECTORS: Vectors = np.empty((0, 0), dtype=np.float32)
"""The vectors of an item that has none yet. No index accepts them."""


@dataclass(slots=True, kw_only=True)
class Payload:
    """The text of an item, its times, and the name of its owner: for the model, and for readers of a server's
    points."""

    text: str
    user_name: str
    created_at: datetime
    updated_at: datetime
    categories: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Point:
    """One searchable item. `user` is `users.id`; `text_hash` is that of the text whose chunks' `vectors` they are.
    `words` is the vector of its words (see `index.bm25`). `writers`: the other apps that had a part in it.

    Its `document` is read only if needed: to embed the text, and for an index that stores it. Not frozen, since
    creating frozen objects takes twice as long and there may be a hundred thousand.
    """

    id: UUID
    user: UUID
    app: UUID
    namespace: str
    kind: str
    revision: int
    text_hash: str
    categories: Sequence[UUID] = ()
    writers: Sequence[UUID] = ()
    document: Payload | None = None
    words: SparseVector = NO_WORDS
    vectors: Vectors = field(default_factory=lambda: NO_VECTORS)


def chunks_of(point: Point) -> int:
    """The number of vectors of a point."""
    return len(point.vectors)


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions that the index can check itself. Empty tuples mean "any"; PostgreSQL decides everything else."""

    user: UUID
    namespaces: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    apps: tuple[UUID, ...] = ()
    excluded: tuple[UUID, ...] = field(default=())
    """The ids of points never to return."""
    rules: Rules = ALL
    """The access rules of the calling app."""
    ids: tuple[UUID, ...] | None = None
    """The points to search; None means all."""

    @property
    def nothing(self) -> bool:
        """Returns True if no point can match."""
        return self.ids == () or self.rules.smallest().nothing


class Watermark(NamedTuple):
    """The position up to which a collection has followed PostgreSQL.

    `epoch` names the generation that the collection was filled for. `sequence` grows with deliveries.
    """

    epoch: UUID
    sequence: int


class Owner(NamedTuple):
    """The installation that a collection belongs to, as recorded in the collection.

    `place`: the PostgreSQL and the database in it. `writer`: the process that wrote this. It counts its `beat`s, which
    show that it runs.
    """

    installation: UUID
    place: str
    writer: UUID = NOBODY
    beat: int = 0


class CollectionState(NamedTuple):
    """The state of a collection, as recorded in it.

    `created`: this index created it, or it is empty and nobody else can open it. `ids`: some of its points, if it has
    neither an owner nor a watermark.
    """

    owner: Owner | None
    watermark: Watermark | None
    created: bool = False
    ids: tuple[UUID, ...] = ()


Accept = Callable[[CollectionState], Awaitable[Owner]]
"""Called when an index has connected to a collection, before anything else is done with it, and again by `renew`.
Returns the owner that the collection should name. Raises `OwnedByAnother` if it must be left alone."""

Connected = Callable[[Watermark | None], Awaitable[Watermark | None]]
"""Called with a collection's watermark whenever an index has connected to it, before it answers anything. Returns the
watermark that the collection starts with, if it is a new one."""


class Hit(NamedTuple):
    """A candidate: `score` is the cosine similarity of its best chunk in [-1, 1]."""

    id: UUID
    score: float


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The state of the index: `collection` names model and dimension; `points` is the number of points."""

    engine: str
    version: str
    collection: str
    dimension: int
    points: int


class IndexUnavailable(Exception):
    """The index does not answer, returns invalid data or refuses. Search falls back to text. Never shown to a user."""


class OwnedByAnother(IndexUnavailable):
    """The collection belongs to another installation, or may belong to one. Nothing in it is written or removed.

    `asked`: somebody has to say whether this database was copied or moved.
    """

    def __init__(self, words: str, *, asked: bool = False) -> None:
        super().__init__(words)
        self.asked = asked


class VectorIndex(Protocol):
    """The interface of a vector index. Every method raises `IndexUnavailable` for any engine error, and after `close`.

    A vector of another dimension, not finite or of length zero, or a point without one, is the caller's mistake:
    `ValueError`, nothing written.

    After a failed `open`, the next call of any method tries again.
    """

    async def keeps_documents(self) -> bool:
        """Returns True if `upsert` needs the points' documents, which others may read in this index."""
        ...

    async def open(self) -> None:
        """Connects, and creates the collection with its payload indexes if it is missing.

        An existing collection of another dimension is never changed or searched. The name contains model and dimension,
        so such a collection can have the same name only after tampering.
        """
        ...

    async def renew(self) -> None:
        """Checks again whose the collection is, and writes that it is still used."""
        ...

    async def upsert(self, points: Sequence[Point]) -> None:
        """Writes the points; the same id replaces. Acknowledged when searchable; a failure may leave some written."""
        ...

    async def delete(self, ids: Sequence[UUID]) -> None:
        """Removes the points; unknown ids are fine."""
        ...

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        """The nearest points, best first, at most `limit`. The best chunk of each counts."""
        ...

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        """The points that share words, best first, at most `limit`. Scores are the products of their vectors of words,
        above 0."""
        ...

    def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[IndexEntries, None]:
        """All entries in ascending order of id, in pages (memory use stays constant), of one user or of all.

        A point that another program wrote appears as an entry of user 0 at revision 0: it is wrong whatever it
        contains.
        """
        ...

    async def count(self, user: UUID | None = None) -> int:
        """The exact number of points."""
        ...

    async def watermark(self) -> Watermark | None:
        """The watermark of the collection; None if it never got one."""
        ...

    async def set_watermark(self, watermark: Watermark) -> None:
        """Writes the watermark in the same way as points, so that an event that loses points also loses the watermark.

        It is not an entry, does not count as a point, and no search finds it.
        """
        ...

    async def activate(self) -> None:
        """Makes the alias name this collection, once it is complete: this is when a new model takes over."""
        ...

    async def drop(self) -> None:
        """Removes the collection with all its content, and closes the index. A collection that the alias names
        stays."""
        ...

    async def flush(self) -> None:
        """Makes everything acknowledged so far survive a power cut, if the engine leaves that to us."""
        ...

    async def status(self) -> IndexStatus:
        """The version and size, for health and doctor."""
        ...

    async def close(self) -> None:
        """Flushes and releases all resources. May be called twice."""
        ...
