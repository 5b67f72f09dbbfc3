"""Qdrant's JSON, as its REST API takes and gives it, and the engine's objects.

What is not understood is refused rather than passed over: a condition that were left out would widen a filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as edge

from app.index.collections import check_vectors
from app.index.engine import buffer, with_codes

_OF_A_QUERY = frozenset(
    {"query", "filter", "params", "limit", "offset", "with_payload", "with_vector", "score_threshold"}
)


class Refused(Exception):
    """A request that cannot be served: an HTTP status, and why in Qdrant's words where it has some."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def wrong(words: str) -> Refused:
    """The request is not as it must be."""
    return Refused(400, f"Wrong input: {words}")


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


def points(values: Any, dimension: int) -> list[edge.Point]:
    """The points of an upsert, each with one vector without a name."""
    made = []
    for value in array(values, "points"):
        given = mapping(value, "point")
        payload = given.get("payload")
        if payload is not None:
            mapping(payload, "payload")
        try:
            made.append(edge.Point(identifier(given.get("id")), _vector(given.get("vector"), dimension), payload))
        except (TypeError, ValueError, OverflowError) as error:
            raise wrong(f"point {given.get('id')}: {error}") from error
    return made


def query(body: Mapping[str, Any], dimension: int) -> edge.SearchRequest:
    """The nearest points to a vector. Of `params` only `exact` means something: there is no graph."""
    only(body, _OF_A_QUERY, "query")
    asked = body.get("query")
    if isinstance(asked, Mapping):
        only(asked, {"nearest"}, "query")
        asked = asked.get("nearest")
    limit = number(body.get("limit"), "limit", 10, least=1)
    threshold = body.get("score_threshold")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise wrong("score_threshold must be a number")
    exact = body.get("params") is not None and bool(mapping(body["params"], "params").get("exact"))
    return edge.SearchRequest(
        query=edge.Query.Nearest(_vector(asked, dimension)),
        filter=condition(body.get("filter")),
        limit=limit,
        offset=number(body.get("offset"), "offset", 0),
        params=_exactly() if exact else with_codes(limit),
        with_payload=selector(body.get("with_payload", False)),
        with_vector=flag(body.get("with_vector", False), "with_vector"),
        score_threshold=threshold,
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
    given = mapping(value, "filter")
    only(given, {"must", "must_not", "should"}, "filter")
    parts: dict[str, list[edge.ConditionType] | None] = {}
    for name in ("must", "must_not", "should"):
        part = given.get(name)
        conditions = [part] if isinstance(part, Mapping) else array([] if part is None else part, name)
        parts[name] = list(map(one_condition, conditions)) or None
    return edge.Filter(must=parts["must"], must_not=parts["must_not"], should=parts["should"])


def one_condition(value: Any) -> edge.ConditionType:
    """A condition on the id or on a key of the payload, or a filter in its place."""
    return _condition(mapping(value, "condition"))


def selector(value: Any) -> edge.WithPayloadType:
    """Which part of a payload to return: all, none, or the keys that are named."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, Mapping):
        only(value, {"include", "exclude"}, "with_payload")
        if value.get("exclude") is not None:
            return edge.PayloadSelector.Exclude(_strings(value["exclude"], "with_payload"))
        value = value.get("include") or []
    return _strings(value, "with_payload")


def record(found: edge.Record | edge.ScoredPoint) -> dict[str, Any]:
    """A point as it is returned; parts that were not asked for are left out."""
    told: dict[str, Any] = {"id": plain(found.id)}
    if isinstance(found, edge.ScoredPoint):
        told |= {"version": found.version, "score": found.score}
    if found.payload is not None:
        told["payload"] = found.payload
    if found.vector is not None:
        told["vector"] = found.vector
    return told


def plain(id: edge.PointId | None) -> int | str | None:
    """A point id as JSON."""
    return id if id is None or isinstance(id, int) else str(id)


def mapping(value: Any, name: str) -> Mapping[str, Any]:
    """`value` if it is a JSON object."""
    if not isinstance(value, Mapping):
        raise wrong(f"{name} must be an object")
    return value


def array(value: Any, name: str) -> Sequence[Any]:
    """`value` if it is a JSON array."""
    if not isinstance(value, list):
        raise wrong(f"{name} must be an array")
    return value


def number(value: Any, name: str, default: int, *, least: int = 0) -> int:
    """`value` if it is a whole number of at least `least`; the default if it is missing."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**32:
        raise wrong(f"{name} must be a whole number of at least {least}")
    return value


def flag(value: Any, name: str) -> bool:
    """`value` if it is true or false."""
    if not isinstance(value, bool):
        raise wrong(f"{name} must be true or false here")
    return value


def only(given: Mapping[str, Any], known: set[str] | frozenset[str], name: str) -> None:
    """Refuse keys that mean something to Qdrant and nothing here."""
    if unknown := sorted(key for key, value in given.items() if key not in known and value is not None):
        raise wrong(f"{name}: {', '.join(unknown)} is not supported here")


def _vector(value: Any, dimension: int) -> list[float]:
    if not isinstance(value, list):
        raise wrong("a vector must be one array of numbers, without a name")
    if len(value) != dimension:
        raise wrong(f"Vector dimension error: expected dim: {dimension}, got {len(value)}")
    try:
        with np.errstate(over="ignore"):
            vector = np.asarray(value, dtype=np.float32)
        check_vectors((vector,), dimension)
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(str(error)) from error
    return buffer(vector)


def _condition(given: Mapping[str, Any]) -> edge.ConditionType:
    kinds = {key for key, value in given.items() if value is not None}
    if kinds == {"has_id"}:
        return edge.HasIdCondition(set(identifiers(given["has_id"])))
    if kinds and kinds <= {"must", "must_not", "should"} and (nested := condition(given)) is not None:
        return nested
    if kinds != {"key", "match"} or not isinstance(given["key"], str):
        raise wrong(f"condition: {', '.join(sorted(kinds)) or 'nothing'} is not supported here")
    match = {key: value for key, value in mapping(given["match"], "match").items() if value is not None}
    makers = {"value": edge.MatchValue, "any": edge.MatchAny, "except": edge.MatchExcept}
    if len(match) != 1 or (how := next(iter(match))) not in makers:
        raise wrong(f"match: {', '.join(sorted(match)) or 'nothing'} is not supported here")
    compared = match[how] if isinstance(match[how], list) else [match[how]]
    if any(isinstance(one, bool) for one in compared):
        raise wrong(f"match of {given['key']}: true and false cannot be compared here")  # they would pass for 1 and 0
    try:
        return edge.FieldCondition(key=given["key"], match=makers[how](match[how]))
    except (TypeError, ValueError, OverflowError) as error:
        raise wrong(f"match of {given['key']}: {match[how]!r} cannot be compared") from error


def _strings(value: Any, name: str) -> list[str]:
    if not all(isinstance(one, str) for one in array(value, name)):
        raise wrong(f"{name} must be a list of keys")
    return value  # type: ignore[no-any-return]


def _exactly() -> edge.SearchParams:
    return edge.SearchParams(exact=True, quantization=edge.QuantizationSearchParams(ignore=True))
