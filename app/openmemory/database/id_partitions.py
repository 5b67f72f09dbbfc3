"""Halves of what has random ids: two statements that look through one of them each, at once, take half as long.

Ids that others made may be no random ones, as those that begin with the time: then one of the two does all the work,
and what they find together is the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, literal_column

_MIDDLE: ColumnElement[Any] = literal_column("'80000000-0000-0000-0000-000000000000'::uuid")


class Half(StrEnum):
    """One half of all ids."""

    LOWER = "<"
    UPPER = ">="

    def of(self, ids: Any) -> ColumnElement[bool]:
        """Whether an id lies in it."""
        inside: ColumnElement[bool] = ids.bool_op(self.value)(_MIDDLE)
        return inside
