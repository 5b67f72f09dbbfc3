"""Converts between the index's types and those of a Qdrant server's client."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from uuid import UUID

from qdrant_client import models

from openmemory.access.rules import Rules
from openmemory.index.conditions import conditions_of, readable
from openmemory.index.multi_vector import MORE, WORDS, vectors_by_name
from openmemory.index.port import Filter, Hit, IndexUnavailable, Point, SparseVector


def vectors(point: Point) -> Any:
    """The vectors of a point, by name."""
    dense: dict[str, Any] = {name: each.tolist() for name, each in vectors_by_name(point.vectors).items()}
    return {**dense, WORDS: sparse(point.words)} if len(point.words.indices) else dense


def sparse(words: SparseVector) -> models.SparseVector:
    """A vector of words in the client's form."""
    return models.SparseVector(indices=words.indices.tolist(), values=words.values.tolist())


def hits(answer: models.QueryResponse) -> list[Hit]:
    """The hits of an answer."""
    # A point with a number as id belongs to another program, whatever its payload says.
    return [Hit(UUID(str(hit.id)), hit.score) for hit in answer.points if not isinstance(hit.id, int)]


def cosines(answer: models.QueryResponse) -> list[Hit]:
    """The hits of an answer, with valid cosines."""
    return [Hit(id_, min(1.0, max(-1.0, score))) for id_, score in hits(answer)]


def configuration(dimension: int) -> Any:
    """The vectors of a new collection."""
    first = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
    each = models.MultiVectorConfig(comparator=models.MultiVectorComparator.MAX_SIM)
    return {"": first, MORE: first.model_copy(update={"multivector_config": each})}


def filter_of(where: Filter) -> models.Filter:
    """A filter in the client's form."""
    must, must_not, should = conditions_of(where)
    mine = models.Filter.model_validate({"must": must, "must_not": must_not, "should": should or None})
    let_through = _readable(where.rules)
    listed = [] if where.ids is None else [models.HasIdCondition(has_id=[str(id_) for id_ in where.ids])]
    return models.Filter(
        must=[*(mine.must or ()), *listed, *(let_through.must or ())] or None,
        must_not=[*(mine.must_not or ()), *(let_through.must_not or ())] or None,
        should=mine.should,
    )


@lru_cache(maxsize=64)
def _readable(rules: Rules) -> models.Filter:
    """Cached, because validating a thousand ids takes a while."""
    must, must_not, _ = readable(rules)
    return models.Filter.model_validate({"must": must, "must_not": must_not})


def check_collection(collection: str, info: models.CollectionInfo, dimension: int) -> None:
    """Checks that a collection has the vectors of ours.

    Raises:
        IndexUnavailable: it has others.
    """
    vectors = info.config.params.vectors
    parts = {"": vectors} if isinstance(vectors, models.VectorParams) else dict(vectors or {})
    if set(parts) != {"", MORE} or set(info.config.params.sparse_vectors or ()) != {WORDS}:
        raise IndexUnavailable(
            f"the collection {collection} has other vectors than one without a name, {MORE} and {WORDS}"
        )
    for name, part in parts.items():
        if (part.size, part.distance) != (dimension, models.Distance.COSINE):
            raise IndexUnavailable(
                f"the collection {collection} holds vectors of {part.size} dimensions compared by "
                f"{part.distance.value}; the embedder makes {dimension}, compared by Cosine"
            )
        if (part.multivector_config is not None) != (name == MORE):
            raise IndexUnavailable(f"the collection {collection} holds several vectors under another name than {MORE}")
