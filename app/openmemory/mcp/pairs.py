"""Tool output for key-value facts: values that changed, and results that disagree about a value.

A value is no more trustworthy than the memory that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from openmemory.dedup import key_values
from openmemory.mcp.untrusted import Untrusted
from openmemory.memories.schemas import PairChange, PairSource
from openmemory.search.conflicts import Disagreement, Statement


class Said(BaseModel):
    app: str
    at: str


class ChangedPair(BaseModel):
    key: str
    old: str
    new: str
    was: Said = Field(description="The app that had said the old value, and when.")


class PairValue(Said):
    value: str
    id: str


class Conflict(BaseModel):
    key: str
    namespace: str
    current: PairValue = Field(description="What was written last.")
    previous: list[PairValue] = Field(description="What other results say, newest first.")


def wrap_untrusted(changed: Sequence[PairChange], untrusted: Untrusted) -> list[PairChange]:
    """Returns the changes, with text that reads like instructions wrapped. New values are not wrapped: the assistant
    just sent them."""
    return [
        PairChange(
            key=one.key, old=untrusted.name(one.old), new=one.new,
            was=PairSource(app=untrusted.name(one.was.app), at=one.was.at),
        )
        for one in changed
    ]  # fmt: skip


def told(changed: Sequence[PairChange], shown: Sequence[PairChange]) -> str | None:
    """Describes the changes in words, without old values that are wrapped in `shown`; None if nothing changed."""
    plain = [
        one if one.old == before.old else one.model_copy(update={"old": "…"})
        for before, one in zip(changed, shown, strict=True)
    ]
    return key_values.told(plain) if plain else None


def conflict(each: Disagreement, untrusted: Untrusted) -> dict[str, Any]:
    """Returns a disagreement between results in the format of `Conflict`."""

    def said(one: Statement) -> dict[str, str]:
        value, app = untrusted.name(one.value), untrusted.name(one.app)
        return {"value": value, "id": str(one.id), "app": app, "at": one.at.isoformat()}

    return {
        "key": untrusted.name(each.key), "namespace": untrusted.name(each.namespace),
        "current": said(each.current), "previous": [said(one) for one in each.previous],
    }  # fmt: skip
