"""Converts between the JSON of Qdrant's REST API and the engine's objects.

Unknown input is rejected rather than ignored: a dropped condition would widen a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as edge

from openmemory.index.collections import check_query, check_vectors
from openmemory.index.engine.calls import buffer, guarded, sparse, with_codes
from openmemory.index.engine.shards import Shard, VectorLayout
from openmemory.index.multi_vector import MORE, WORDS
from openmemory.index.port import NO_WORDS, SparseVector, Vectors

_OF_A_QUERY = frozenset({"query", "using", "filter", "limit", "with_payload", "with_vector"})


class RequestRefused(Exception):
    """A request that cannot be served: an HTTP status, and the reason, in Qdrant's words if it has some."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def wrong(words: str) -> RequestRefused:
    """The error for an invalid request."""
    return RequestRefused(400, f"Wrong input: {words}")


def identifier(value: Any) -> edge.PointId:
    """A point id: an unsigned number or a uuid."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64:
        return value
    try:
        return UUID(value)
    except (ValueError, TypeError, AttributeError):
        raise wrong(
            f"value {value} is not a valid point ID, valid values are either an unsigned integer or a UUID"
        ) from None


def identifiers(values: Any) -> list[edge.PointId]:
    """A list of point ids."""
    return [identifier(value) for value in array(values, "ids")]


def shape(value: Any) -> VectorLayout:
    """The vectors of a new collection: one without a name, or that one and `more`, compared by MaxSim."""
    params = mapping(value, "vectors")
    parts = (
        {"": params} if "size" in params else {name: mapping(part, f"vectors.{name}") for name, part in params.items()}
    )
    if set(parts) not in ({""}, {"", MORE}):
        raise wrong(f"vectors: only one without a name, and one named {MORE} beside it, are supported here")
    for name, part in parts.items():
        several = None if part.get("multivector_config") is None else part["multivector_config"]
        if several != ({"comparator": "max_sim"} if name == MORE else None):
            raise wrong(f"vectors: several per point, compared by max_sim, are supported here as {MORE} alone")
        if not isinstance(part.get("size"), int) or part.get("distance") != "Cosine":
            raise wrong("vectors: only vectors that are compared by Cosine are supported here")
    sizes = {number(part["size"], "size", 0, least=1) for part in parts.values()}
    if len(sizes) > 1:
        raise wrong("vectors: must have one size")
    if (dimension := sizes.pop()) > 65_536:
        raise wrong("size: a vector has at most 65536 dimensions")
    return VectorLayout(dimension, MORE not in parts)


def with_words(value: Any) -> bool:
    """Returns True if a new collection has the sparse vector `words`; False if it has none."""
    params = mapping({} if value is None else value, "sparse_vectors")
    if params and (set(params) != {WORDS} or any(mapping(params[WORDS], WORDS).values())):
        raise wrong(f"vectors: the only sparse vectors that are supported here are {WORDS}, without settings")
    return bool(params)


def points(values: Any, of: VectorLayout) -> list[tuple[edge.Point, int]]:
    """The points of an upsert, and the number of vectors of each."""
    result = []
    for value in array(values, "points"):
        fields = mapping(value, "point")
        payload = fields.get("payload")
        if payload is not None:
            mapping(payload, "payload")
        try:
            vectors, count = _vectors(fields.get("vector"), of)
            result.append((edge.Point(identifier(fields.get("id")), vectors, payload), count))
        except (TypeError, ValueError, OverflowError) as error:
            raise wrong(f"point {fields.get('id')}: {error}") from error
    return result


def query(body: Mapping[str, Any], of: Shard) -> edge.SearchRequest | None:
    """A request for the points nearest to a vector. None if no point has such vectors."""
    only(body, _OF_A_QUERY, "query")
    query, using = body.get("query"), body.get("using") or ""
    if using != "" and (using not in (MORE, WORDS) or of.shape.plain):
        raise wrong(f"Not existing vector name error: {using}")
    if isinstance(query, Mapping) and "nearest" in query:
        only(query, {"nearest"}, "query")
        query = query["nearest"]
    limit = number(body.get("limit"), "limit", 10, least=1)
    where = condition(body.get("filter"))
    vector: Any
    if using == WORDS:
        vector, params = _sparse(query), None
    else:
        if using == MORE and isinstance(query, list) and len(query) == 1 and of.shape.dimension > 1:
            [query] = query  # a multi-vector of one
        vector, params = _vector(query, of.shape.dimension), with_codes(limit)
    if using == MORE:
        with guarded():
            long = of.long_texts()
        if long is None:
            return None
        where = edge.Filter(must=[*long, *([where] if where is not None else ())]) if long else where
    return edge.SearchRequest(
        query=edge.Query.Nearest(vector, using=using),
        filter=where,
        limit=limit,
        offset=0,
        params=params,
        with_payload=selector(body.get("with_payload", False)),
        with_vector=flag(body.get("with_vector", False), "with_vector"),
    )


def scroll(body: Mapping[str, Any]) -> edge.ScrollRequest:
    """A page of points in ascending order of id."""
    only(body, {"filter", "limit", "offset", "with_payload", "with_vector"}, "scroll")
    offset = body.get("offset")
    return edge.ScrollRequest(
        offset=None if offset is None else identifier(offset),
        limit=number(body.get("limit"), "limit", 10, least=1),
        filter=condition(body.get("filter")),
        with_payload=selector(body.get("with_payload", True)),
        with_vector=flag(body.get("with_vector", False), "with_vector"),
    )


def condition(value: Any) -> edge.Filter | None:
    """A filter of `must`, `must_not` and `should`, each one condition or a list of them."""
    if value is None:
        return None
    clauses = mapping(value, "filter")
    only(clauses, {"must", "must_not", "should"}, "filter")
    parts: dict[str, list[edge.ConditionType] | None] = {}
    for name in ("must", "must_not", "should"):
        part = clauses.get(name)
        conditions = [part] if isinstance(part, Mapping) else array([] if part is None else part, name)
        parts[name] = list(map(one_condition, conditions)) or None
    return edge.Filter(must=parts["must"], must_not=parts["must_not"], should=parts["should"])


def one_condition(value: Any) -> edge.ConditionType:
    """A condition on the id or on a key of the payload, or a filter in its place."""
    return _condition(mapping(value, "condition"))


def selector(value: Any) -> edge.WithPayloadType:
    """The part of a payload to return: all, none, or the named keys."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if not all(isinstance(one, str) for one in array(value, "with_payload")):
        raise wrong("with_payload must be a list of keys")
    return value  # type: ignore[no-any-return]


def record(entry: edge.Record | edge.ScoredPoint) -> dict[str, Any]:
    """A point in the response format, without parts that were not requested."""
    point: dict[str, Any] = {"id": plain(entry.id)}
    if isinstance(entry, edge.ScoredPoint):
        point |= {"version": entry.version, "score": entry.score}
    if entry.payload is not None:
        point["payload"] = entry.payload
    if entry.vector is not None:
        point["vector"] = _plain_vectors(entry.vector)
    return point


def _plain_vectors(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    vectors = dict(value)
    if (words := vectors.pop(WORDS, None)) is not None and words.indices:
        vectors[WORDS] = {"indices": list(words.indices), "values": list(words.values)}
    return vectors[""] if [*vectors] == [""] else vectors


def plain(id: edge.PointId | None) -> int | str | None:
    """A point id as JSON."""
    return id if id is None or isinstance(id, int) else str(id)


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """Returns `value` if it is a JSON object."""
    if not isinstance(value, Mapping):
        raise wrong(f"{name} must be an object")
    return value


def array(value: Any, name: str) -> Sequence[Any]:
    """Returns `value` if it is a JSON array."""
    if not isinstance(value, list):
        raise wrong(f"{name} must be an array")
    return value


def number(value: Any, name: str, default: int, *, least: int = 0) -> int:
    """Returns `value` if it is a whole number of at least `least`, or the default if it is missing."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
        raise wrong(f"{name} must be a whole number of at least {least}")
    return value


def flag(value: Any, name: str) -> bool:
    """Returns `value` if it is true or false."""
    if not isinstance(value, bool):
        raise wrong(f"{name} must be true or false here")
    return value


def only(fields: Mapping[str, Any], names: set[str] | frozenset[str], name: str) -> None:
    """Rejects keys that Qdrant supports and this server does not."""
    if unknown := sorted(key for key, value in fields.items() if key not in names and value is not None):
        raise wrong(f"{name}: {', '.join(unknown)} is not supported here")


def _vector(value: Any, dimension: int) -> list[float]:
    if not isinstance(value, list):
        raise wrong("a vector must be one array of numbers, without a name")
    if len(value) != dimension:
        raise wrong(f"Vector dimension error: expected dim: {dimension}, got {len(value)}")
    return buffer(_numbers(value, lambda vector: check_query(vector, dimension)))


def _vectors(value: Any, of: VectorLayout) -> tuple[Any, int]:
    """The vectors of a point in the engine's form, and the number of those that are not sparse."""
    if of.plain:
        return _vector(value, of.dimension), 1
    if not isinstance(value, Mapping):
        value = {"": value}
    only(value, {"", MORE, WORDS}, "vector")
    vectors: dict[str, Any] = {"": _vector(value.get(""), of.dimension), WORDS: sparse(NO_WORDS)}
    if value.get(WORDS) is not None:
        vectors[WORDS] = _sparse(value[WORDS])
    if value.get(MORE) is None:
        return vectors, 1
    rows = array(value[MORE], MORE)
    vectors[MORE] = _numbers(rows, lambda more: check_vectors((more,), of.dimension), f"{MORE}: ")
    return vectors, 1 + len(rows)


def _sparse(value: Any) -> edge.SparseVector:
    fields = mapping(value, WORDS)
    only(fields, {"indices", "values"}, WORDS)
    indices, values = array(fields.get("indices"), "indices"), array(fields.get("values"), "values")
    if len(indices) != len(values) or len(set(indices)) != len(indices):
        raise wrong(f"{WORDS}: must have as many values as indices, and each index once")
    if any(isinstance(one, bool) or not isinstance(one, int) or not 0 <= one < 2**32 for one in indices):
        raise wrong(f"{WORDS}: an index must be a whole number of 32 bits")
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"{WORDS}: {error}") from error
    if numbers.ndim != 1 or not np.isfinite(numbers).all():
        raise wrong(f"{WORDS}: the values must be finite numbers")
    return sparse(SparseVector(np.asarray(indices, dtype=np.uint32), numbers))


def _numbers(value: Any, check: Callable[[Vectors], None], name: str = "") -> Vectors:
    try:
        with np.errstate(over="ignore"):
            numbers = np.asarray(value, dtype=np.float32)
        check(numbers)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"{name}{error}") from error
    return numbers


def _condition(fields: Mapping[str, Any]) -> edge.ConditionType:
    kinds = {key for key, value in fields.items() if value is not None}
    if kinds == {"has_id"}:
        return edge.HasIdCondition(set(identifiers(fields["has_id"])))
    if kinds and kinds <= {"must", "must_not", "should"} and (nested := condition(fields)) is not None:
        return nested
    if kinds != {"key", "match"} or not isinstance(fields["key"], str):
        raise wrong(f"condition: {', '.join(sorted(kinds)) or 'nothing'} is not supported here")
    match = {key: value for key, value in mapping(fields["match"], "match").items() if value is not None}
    makers = {"value": edge.MatchValue, "any": edge.MatchAny}
    if len(match) != 1 or (how := next(iter(match))) not in makers:
        raise wrong(f"match: {', '.join(sorted(match)) or 'nothing'} is not supported here")
    compared = match[how] if isinstance(match[how], list) else [match[how]]
    if any(isinstance(one, bool) for one in compared):
        raise wrong(f"match of {fields['key']}: true and false cannot be compared here")  # they would pass for 1 and 0
    try:
        return edge.FieldCondition(key=fields["key"], match=makers[how](match[how]))
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"match of {fields['key']}: {match[how]!r} cannot be compared") from error
