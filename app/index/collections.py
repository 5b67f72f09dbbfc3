"""What a collection is called and what its points carry. Pure, and shared by both engines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np

from app.index.port import Entry, Point, Vector

TENANT = "owner"
"""The payload key that every search filters by: `users.id`."""

FILTERED = ("namespace", "kind", "app")
"""The other payload keys that a search may filter by."""

RECONCILED = (TENANT, "revision")
"""The payload keys that reconciliation reads."""

_MODEL_LENGTH = 64
_NOBODY = UUID(int=0)


def collection_name(alias: str, model: str, dimension: int) -> str:
    """The collection behind an alias: `openmemory__all-minilm-l6-v2-int8__384`.

    At most 140 characters, valid as a folder everywhere and as a Qdrant name. A model whose name does not survive that
    (`nomic/embed:latest`) gets a digest, so that two models never share a collection; capitals do not count.
    """
    plain = model.strip().lower()
    slug = re.sub(r"[^a-z0-9.-]+", "-", plain).strip(".-")
    if not slug or slug != plain or len(slug) > _MODEL_LENGTH:
        digest = hashlib.sha256(plain.encode()).hexdigest()[:8]
        slug = f"{slug[: _MODEL_LENGTH - 9].rstrip('.-')}-{digest}".lstrip("-")
    return f"{alias}__{slug}__{dimension}"


def payload_of(point: Point) -> dict[str, Any]:
    """The payload of a point: the first five keys as mem0's client writes them, then our own."""
    return {
        "data": point.text,
        "hash": point.text_hash,
        "user_id": point.user_name,
        "created_at": _iso(point.created_at),
        "updated_at": _iso(point.updated_at),
        TENANT: str(point.user),
        "app": str(point.app),
        "namespace": point.namespace,
        "kind": point.kind,
        "revision": point.revision,
        "categories": list(point.categories),
    }


def entry_of(id: UUID, payload: Mapping[str, Any] | None) -> Entry:
    """The entry of a stored point.

    A point that somebody else wrote has no owner of ours or no revision: it becomes an entry of nobody at revision 0,
    which no search returns and which reconciliation finds to be wrong.
    """
    try:
        return Entry(id, _uuid(payload[TENANT]), int(payload["revision"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return Entry(id, _NOBODY, 0)


@lru_cache(maxsize=10_000)
def _uuid(text: str) -> UUID:
    """The owner of a point. Most have the same few."""
    return UUID(text)


def check_vectors(vectors: Iterable[Vector], dimension: int) -> None:
    """Refuse vectors that an engine would store without a word and never find again.

    Raises:
        ValueError: not `dimension` numbers, not finite, or of length zero, which has no cosine to anything.
    """
    for vector in vectors:
        if vector.shape != (dimension,):
            raise ValueError(f"vector: has shape {vector.shape}; the collection takes ({dimension},)")
        # One number tells it all: it is nan or inf if any component is, or if their squares overflow.
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.dot(vector, vector))
        if not np.isfinite(square):
            raise ValueError("vector: is not finite")
        if square == 0:
            raise ValueError("vector: has no direction, its length is zero")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
