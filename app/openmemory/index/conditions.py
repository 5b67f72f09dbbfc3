"""Converts a `Filter` to Qdrant's JSON filters: the same for the built-in engine and for a server.

Points carry a label for everything that a filter or a rule may name: their namespace, kind, app and categories. One
integer index answers them all. It is written in the time of one text index, and three times as fast to check for each
of a user's points, which is the cost of an exclusion in a scan.

Conditions in `must` and `should` make the engine start with the matching points, one label after the other. That is the
fastest way for a few labels. For hundreds, a scan is faster, and a double negation ("not one of those that have none of
them") forces it.

The engine starts with the points of one condition. It checks every other condition for each of these points, which
takes longer than comparing the vector. Each point therefore has one label for its user and namespace together, so that
one condition finds the points of a namespace (decision 31).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from openmemory.access.rules import ALL, RuleObjects, Rules
from openmemory.index.port import Filter, Point

TENANT = "owner"
"""The payload key of the user: `users.id`."""

LABELS = "labels"
"""The payload key of the labels."""

MAX_LABELS = 20
"""The number of labels up to which it is fastest to start with the points that have one of them."""

Condition = dict[str, Any]


class Conditions(NamedTuple):
    """A point must meet all of `must`, none of `must_not`, and one of `should` unless that is empty."""

    must: Sequence[Condition]
    must_not: Sequence[Condition]
    should: Sequence[Condition] = ()


@lru_cache(maxsize=20_000)
def label(key: str, value: str | UUID) -> int:
    """The number for a namespace, kind, app or category: 64 bits of a hash, in Qdrant's integer format.

    If two had the same number, they would only be returned, or skipped, together. PostgreSQL checks what is returned.
    """
    return int.from_bytes(blake2b(f"{key}:{value}".encode(), digest_size=8).digest(), "big", signed=True)


def scope_label(user: UUID, namespace: str) -> int:
    """The number for one namespace of one user, as `label` makes it."""
    return label("scope", f"{user} {namespace}")


HAS_CHUNKS = label("chunks", "many")
"""The label of a point that has more than one vector."""


def labels_of(point: Point) -> list[int]:
    """The labels of a point."""
    return [
        scope_label(point.user, point.namespace),
        label("namespace", point.namespace),
        label("kind", point.kind),
        label("app", point.app),
        *(label("writer", id_) for id_ in point.writers),
        *(label("category", id_) for id_ in point.categories),
        *([HAS_CHUNKS] if len(point.vectors) > 1 else ()),
    ]


def conditions_of(where: Filter) -> Conditions:
    """The conditions of a filter except its rules and its listed ids. These may be many, so each engine takes them in
    its own form."""
    few = len(where.namespaces) <= MAX_LABELS
    scopes, namespaces = (where.namespaces, ()) if few else ((), where.namespaces)
    should = [_has(LABELS, scope_label(where.user, name)) for name in scopes]
    must = [] if scopes else [_has(TENANT, str(where.user))]
    for key, values in (("namespace", namespaces), ("kind", where.kinds), ("app", where.apps)):
        if values:
            must.append(_any_of(label(key, value) for value in values))
    return Conditions(must, [_one_of(where.excluded)] if where.excluded else [], should)


def readable(rules: Rules) -> Conditions:
    """The conditions for points that the rules of an app allow, provided they allow any."""
    rules = rules.smallest()
    if rules == ALL:
        return Conditions([], [])
    must_not = _some(rules.denied)
    shared = _some(rules.shared)
    if rules.hidden:
        refused = _some(rules.hidden)
        if not rules.shared.everything:
            refused.append({"must_not": shared})
        must_not.append({"must_not": _some(rules.allowed), "should": refused})
    elif not rules.shared.everything:
        if len(rules.shared) - len(rules.shared.memories) <= MAX_LABELS:
            return Conditions([{"should": shared}], must_not)
        must_not.append({"must_not": shared})
    return Conditions([], must_not)


def _some(objects: RuleObjects) -> list[Condition]:
    """Conditions for points that belong to any of the objects: such a point meets at least one of them. A point belongs
    to every app that had a part in it; PostgreSQL decides whether a rule that allows an app covers it."""
    conditions = [_one_of(objects.memories)] if objects.memories else []
    labels = [
        label(key, value)
        for key, values in (
            ("namespace", objects.namespaces),
            ("app", objects.apps),
            ("writer", objects.apps),
            ("category", objects.categories),
        )
        for value in values
    ]
    return [*conditions, _any_of(labels)] if labels else conditions


def _has(key: str, value: int | str) -> Condition:
    return {"key": key, "match": {"value": value}}


def _any_of(labels: Iterable[int]) -> Condition:
    return {"key": LABELS, "match": {"any": list(labels)}}


def _one_of(ids: Iterable[UUID]) -> Condition:
    return {"has_id": [str(id_) for id_ in ids]}
