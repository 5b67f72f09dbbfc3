"""Visibility rules for captures and their usage counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, ColumnElement, and_, func, literal_column, or_, select, true

from openmemory.access.readable import is_not_paused, is_visible
from openmemory.capture.models import Capture
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller


def own(caller: Caller, rows: Any) -> ColumnElement[bool]:
    """A condition that selects the rows a caller may see. An app sees its own rows, and none while it is paused.

    `rows` is a mapped class with user_id, app_id and namespace. Execute the query with `caller.parameters`.
    """
    mine = and_(rows.user_id == caller.user_id, is_visible(rows))
    return mine if caller.owner else and_(mine, rows.app_id == caller.app_id, is_not_paused())


async def unread(tx: Tx, caller: Caller, namespaces: Sequence[str]) -> int:
    """The number of texts in these namespaces (all, if there are none) that the caller may see, that the language model
    has not read, and that no memory holds."""
    which = and_(
        own(caller, Capture),
        # Written out, so that each part has its partial index.
        or_(
            literal_column("captures.status IN ('pending', 'working')", Boolean),
            literal_column("captures.status = 'failed'", Boolean),
        ),
        func.cardinality(Capture.memory_ids) == 0,
        Capture.namespace == func.any(list(namespaces)) if namespaces else true(),
    )
    return await tx.scalar(select(func.count()).select_from(Capture).where(which), caller.parameters) or 0
