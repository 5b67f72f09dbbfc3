"""Id partitions: two concurrent statements that each scan one half of a set of random ids take half as long.

Ids from elsewhere may not be random, such as ids that begin with the time. One statement then does all the work, but
the combined result is the same.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, literal_column

_MIDDLE: ColumnElement[Any] = literal_column("'80000000-0000-0000-0000-000000000000'::uuid")


class IdPartition(StrEnum):
    """One partition of all ids."""

    LOWER = "<"
    UPPER = ">="

    def of(self, ids: Any) -> ColumnElement[bool]:
        """Returns a condition that is true if an id lies in this partition."""
        inside: ColumnElement[bool] = ids.bool_op(self.value)(_MIDDLE)
        return inside
