"""The names of collections and the payload of their points. Has no side effects. Shared by both engines."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

import numpy as np

from openmemory.index.conditions import LABELS, TENANT, labels_of
from openmemory.index.entries import ending, packed
from openmemory.index.port import NOBODY, Owner, Point, Vector, Vectors, Watermark

WATERMARK = 0x6F6D776D
"""The id of the point that contains a collection's watermark: a number, unlike the id of any memory."""

OWNER = 0x6F6D6F77
"""The id of the point that names a collection's owner."""

RESERVED = (WATERMARK, OWNER)
"""The points that are neither memories nor passages."""

RECONCILED = (TENANT, "revision")
"""The payload keys that reconciliation reads."""

_PARTS = "words-scope"
_MODEL_LENGTH = 64
_CHECKED = 256


def collection_name(alias: str, model: str, dimension: int) -> str:
    """The collection behind an alias: `openmemory__all-minilm-l6-v2-int8__384__words-scope`.

    The end names what a point has besides the vector of its text. A collection without it is rebuilt.

    At most 150 characters, valid as a folder everywhere and as a Qdrant name. If a model's name must be changed for
    that (`nomic/embed:latest`), a digest is added, so that two models never share a collection. Case is ignored.
    """
    name = model.strip().lower()
    slug = re.sub(r"[^a-z0-9.-]+", "-", name).strip(".-")
    if not slug or slug != name or len(slug) > _MODEL_LENGTH:
        digest = hashlib.sha256(name.encode()).hexdigest()[:8]
        slug = f"{slug[: _MODEL_LENGTH - 9].rstrip('.-')}-{digest}".lstrip("-")
    return f"{alias}__{slug}__{dimension}__{_PARTS}"


def payload_of(point: Point) -> dict[str, Any]:
    """The payload for filters and the comparison. It is all that the built-in engine gets, since nobody else reads it.

    The engine must convert every value, and read the whole payload for a part of it. With the text in it, both took
    twice as long, and the folder twice the space.
    """
    return {TENANT: text_of(point.user), LABELS: labels_of(point), "revision": point.revision}


def readable_payload_of(point: Point) -> dict[str, Any]:
    """The payload of a point on a server, where others may read it. The first five keys are those of mem0's client.

    Raises:
        ValueError: the point was read without its document.
    """
    if (document := point.document) is None:
        raise ValueError(f"point {point.id}: has no document")
    return {
        "data": document.text,
        "hash": point.text_hash,
        "user_id": document.user_name,
        "created_at": _iso(document.created_at),
        "updated_at": _iso(document.updated_at),
        **payload_of(point),
        "app": text_of(point.app),
        "namespace": point.namespace,
        "kind": point.kind,
        "categories": list(document.categories),
    }


def watermark_payload(watermark: Watermark) -> dict[str, Any]:
    """The payload of the point that contains a watermark. Its owner is not a user's id, so no search finds it."""
    return {
        TENANT: "watermark", LABELS: [], "revision": 0,
        "epoch": str(watermark.epoch), "sequence": watermark.sequence,
    }  # fmt: skip


def owner_payload(owner: Owner) -> dict[str, Any]:
    """The payload of the point that names the owner of a collection. No search finds it either."""
    return {
        TENANT: "owner", LABELS: [], "revision": 0,
        "installation": str(owner.installation), "place": owner.place, "writer": str(owner.writer), "beat": owner.beat,
    }  # fmt: skip


def owner_of(payload: Mapping[str, Any] | None) -> Owner | None:
    """The owner in a payload. None if there is no valid one."""
    try:
        values = payload or {}
        installation, writer = UUID(values["installation"]), UUID(values["writer"])
        return Owner(installation, str(values["place"]), writer, int(values["beat"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def reserved_vector(dimension: int) -> Vector:
    """The vector of those points, which must have one like any other."""
    return np.full(dimension, dimension**-0.5, dtype=np.float32)


def watermark_of(payload: Mapping[str, Any] | None) -> Watermark | None:
    """The watermark in a payload. None if there is no valid one."""
    try:
        return Watermark(UUID(payload["epoch"]), int(payload["sequence"]))  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def entry_of(id: UUID | int, payload: Mapping[str, Any] | None) -> bytes:
    """The packed entry of a stored point.

    A point that another program wrote has no valid owner or revision. It becomes an entry of user 0 at revision 0,
    which no search returns and which reconciliation treats as wrong. Our ids are uuids, so a point with a number as id
    belongs to another program. The uuid that represents it begins with 64 zeros, unlike any of ours, and so sorts as
    the engine sorts it.
    """
    if isinstance(id, int):
        id = UUID(int=id)
    try:
        return id.int.to_bytes(16, "big") + _ending(payload[TENANT], payload["revision"])  # type: ignore[index]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return packed(id, NOBODY, 0)


def points_of(ids: Iterable[UUID]) -> list[UUID | int]:
    """Every point that the ids may refer to: `entry_of` converts numeric ids to uuids."""
    points: list[UUID | int] = []
    for id_ in ids:
        points.append(id_)
        if id_.int < 2**64:
            points.append(id_.int)
    return points


@lru_cache(maxsize=10_000, typed=True)
def _ending(owner: str, revision: int) -> bytes:
    return ending(UUID(owner), revision)


@lru_cache(maxsize=10_000)
def text_of(id: UUID) -> str:
    """The text of a uuid that many points share."""
    return str(id)


@lru_cache(maxsize=10_000)
def same_uuid(text: str) -> UUID:
    """A uuid that many points share, such as their owner's. Returns the same object for the same text, so that
    comparing is free."""
    return UUID(text)


def check_vectors(vectors: Sequence[Vectors], dimension: int) -> None:
    """Rejects vectors that would be stored and never found again. Each element contains the vectors of one point.

    Raises:
        ValueError: not (chunks, `dimension`) numbers, not finite, or of length zero, which has no cosine to anything.
    """
    for each in vectors:
        if each.ndim != 2 or not len(each) or each.shape[1] != dimension:
            raise ValueError(f"vector: has shape {each.shape}; the collection takes (chunks, {dimension})")
    for start in range(0, len(vectors), _CHECKED):
        rows = np.concatenate(vectors[start : start + _CHECKED])
        with np.errstate(over="ignore", invalid="ignore"):
            # One number suffices: it is nan or inf if any component is, or if their squares overflow.
            squares = np.einsum("ij,ij->i", rows, rows)
        if not np.isfinite(squares).all():
            raise ValueError("vector: is not finite")
        if not squares.all():
            raise ValueError("vector: has no direction, its length is zero")


def check_query(vector: Vector, dimension: int) -> None:
    """Rejects a vector that nothing can be compared with.

    Raises:
        ValueError: not `dimension` numbers, not finite, or of length zero.
    """
    if vector.shape != (dimension,):
        raise ValueError(f"vector: has shape {vector.shape}; the collection takes ({dimension},)")
    check_vectors((vector[np.newaxis],), dimension)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
