"""Tool output for key-value facts: values that changed, and results that disagree about a value.

A value is no more trustworthy than the memory that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel

from openmemory.doors.mcp.tool import Id
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.memories.schemas import PairChange
from openmemory.search.schemas import Disagreement, Statement


class Provenance(BaseModel):
    app: str
    at: str


class ChangedPair(BaseModel):
    key: str
    old: str
    new: str
    was: Provenance


class PairValue(Provenance):
    value: str
    id: Id


class Conflict(BaseModel):
    key: str
    namespace: str
    current: PairValue
    previous: list[PairValue]


def changed_pairs(changed: Sequence[PairChange], untrusted: Untrusted) -> list[ChangedPair]:
    """Returns the changes, with text that reads like instructions wrapped. New values are not wrapped: the assistant
    just sent them."""
    pairs = [ChangedPair.model_validate(one.model_dump(mode="json")) for one in changed]
    for pair in pairs:
        pair.old, pair.was.app = untrusted.name(pair.old), untrusted.name(pair.was.app)
    return pairs


def conflict(each: Disagreement, untrusted: Untrusted) -> Conflict:
    """Returns a disagreement between results, with text that reads like instructions wrapped."""

    def to_value(one: Statement) -> PairValue:
        value, app = untrusted.name(one.value), untrusted.name(one.app)
        return PairValue(value=value, id=one.id, app=app, at=one.at.isoformat())

    return Conflict(
        key=untrusted.name(each.key), namespace=untrusted.name(each.namespace), current=to_value(each.current),
        previous=[to_value(one) for one in each.previous],
    )  # fmt: skip
