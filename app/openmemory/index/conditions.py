"""What a `Filter` means in Qdrant's own words, as JSON: the same for the built-in engine and for a server.

Points carry a label for each thing that a filter or a rule may name: their namespace, kind, app and categories. One
index of numbers answers them all: written in the time of one of text, and three times as fast to look into for each of
a user's points, which is what excluding something costs in a scan.

Conditions of `must` and `should` make the engine begin with the points that meet them, one label after the other, which
is the quickest way for a few labels; for hundreds a scan is, and "not one of those that have none of them" gets it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple
from uuid import UUID

from openmemory.access.rules import ALL, Objects, Rules
from openmemory.index.port import Filter, Point

TENANT = "owner"
"""The payload key that every search filters by: `users.id`."""

LABELS = "labels"
"""The payload key of the labels."""

FEW = 20
"""Labels up to which the points that have one of them are the quickest beginning."""

Condition = dict[str, Any]


class Conditions(NamedTuple):
    """Those that a point must meet, and those that it must not."""

    must: Sequence[Condition]
    must_not: Sequence[Condition]


@lru_cache(maxsize=20_000)
def label(key: str, value: str | UUID) -> int:
    """The number that stands for a namespace, kind, app or category: 64 bits of a hash, as Qdrant keeps integers.

    Two of one user that shared a number would only be proposed, or passed over, together.
    """
    return int.from_bytes(blake2b(f"{key}:{value}".encode(), digest_size=8).digest(), "big", signed=True)


LONG = label("windows", "several")
"""The label of a point that has more than one vector."""


def labels_of(point: Point) -> list[int]:
    """The labels of a point."""
    return [
        label("namespace", point.namespace),
        label("kind", point.kind),
        label("app", point.app),
        *(label("category", id_) for id_ in point.categories),
        *([LONG] if len(point.vectors) > 1 else ()),
    ]


def asked(where: Filter) -> Conditions:
    """What a filter asks for but its rules, and the ids that it lists: these may be many, so each engine takes them in
    its own form."""
    must: list[Condition] = [{"key": TENANT, "match": {"value": str(where.user)}}]
    for key, wanted in (("namespace", where.namespaces), ("kind", where.kinds), ("app", where.apps)):
        if wanted:
            must.append(_any_of(label(key, value) for value in wanted))
    return Conditions(must, [_one_of(where.excluded)] if where.excluded else [])


def readable(rules: Rules) -> Conditions:
    """What the rules of an app let through, if they let anything through."""
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
        if len(rules.shared) - len(rules.shared.memories) <= FEW:
            return Conditions([{"should": shared}], must_not)
        must_not.append({"must_not": shared})
    return Conditions([], must_not)


def _some(objects: Objects) -> list[Condition]:
    """The conditions one of which a point meets that is among the objects."""
    found = [_one_of(objects.memories)] if objects.memories else []
    labels = [
        label(key, value)
        for key, values in (
            ("namespace", objects.namespaces),
            ("app", objects.apps),
            ("category", objects.categories),
        )
        for value in values
    ]
    return [*found, _any_of(labels)] if labels else found


def _any_of(labels: Iterable[int]) -> Condition:
    return {"key": LABELS, "match": {"any": list(labels)}}


def _one_of(ids: Iterable[UUID]) -> Condition:
    return {"has_id": [str(id_) for id_ in ids]}
