"""What a collection is called and what its points carry. Pure, and shared by both engines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import Any
from uuid import UUID

import numpy as np

from app.index.port import NOBODY, Entry, Point, Vector

TENANT = "owner"
"""The payload key that every search filters by: `users.id`."""

FILTERED = ("namespace", "kind", "app")
"""The other payload keys that a search may filter by."""

RECONCILED = (TENANT, "revision")
"""The payload keys that reconciliation reads."""

_MODEL_LENGTH = 64


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
    """What filters and the comparison read: all that the built-in engine is given, which nobody else reads.

    It has to convert every value, and to read the whole payload for a part of it: with the text in it both took twice
    as long, and the folder twice the room.
    """
    return {
        TENANT: str(point.user),
        "app": str(point.app),
        "namespace": point.namespace,
        "kind": point.kind,
        "revision": point.revision,
    }


def readable_payload_of(point: Point) -> dict[str, Any]:
    """The payload of a point on a server, where others may read it: the first five keys are those of mem0's client."""
    return {
        "data": point.text,
        "hash": point.text_hash,
        "user_id": point.user_name,
        "created_at": _iso(point.created_at),
        "updated_at": _iso(point.updated_at),
        **payload_of(point),
        "categories": list(point.categories),
    }


def entry_of(id: UUID, payload: Mapping[str, Any] | None) -> Entry:
    """The entry of a stored point.

    A point that somebody else wrote has no owner of ours or no revision: it becomes an entry of nobody at revision 0,
    which no search returns and which reconciliation finds to be wrong.
    """
    try:
        return Entry(id, same_uuid(payload[TENANT]), int(payload["revision"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return Entry(id, NOBODY, 0)


@lru_cache(maxsize=10_000)
def same_uuid(text: str) -> UUID:
    """A uuid that many have, such as their owner's: the same object for the same text, so that comparing is free."""
    return UUID(text)


def check_vectors(vectors: Iterable[Vector], dimension: int) -> None:
    """Refuse vectors that an engine would store without a word and never find again.

    Raises:
        ValueError: not `dimension` numbers, not finite, or of length zero, which has no cosine to anything.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        for vector in vectors:
            if vector.shape != (dimension,):
                raise ValueError(f"vector: has shape {vector.shape}; the collection takes ({dimension},)")
            # One number tells it all: it is nan or inf if any component is, or if their squares overflow.
            square = float(np.dot(vector, vector))
            if not isfinite(square):
                raise ValueError("vector: is not finite")
            if square == 0:
                raise ValueError("vector: has no direction, its length is zero")


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
