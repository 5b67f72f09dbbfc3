"""Visibility rules for captures and their usage counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from sqlalchemy import Boolean, ColumnElement, Text, Uuid, and_, bindparam, func, literal_column, or_, select
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import is_not_paused, is_visible
from openmemory.capture.models import Capture
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default


def own(caller: Caller, rows: Any) -> ColumnElement[bool]:
    """A condition that selects the rows a caller may see. An app sees its own rows, and none while it is paused.

    `rows` is a mapped class with user_id, app_id and namespace. Execute the query with `caller.parameters`.
    """
    mine = and_(rows.user_id == bindparam("caller_user_id", type_=Uuid), is_visible(rows))
    app_id: Any = bindparam("caller_app_id", type_=Uuid)
    return mine if caller.owner else and_(mine, rows.app_id == app_id, is_not_paused())


async def unread(tx: Tx, caller: Caller, namespaces: Sequence[str]) -> int:
    """The number of texts in these namespaces (all, if there are none) that the caller may see, that the language model
    has not read, and that no memory holds."""
    values = {**caller.parameters, "namespaces": list(namespaces) or None}
    [(count,)] = await _unread(caller.owner, caller.default).rows(tx, values)
    return int(count)


@cache
def _unread(owner: bool, default: Default) -> CompiledStatement:
    namespaces: Any = bindparam("namespaces", type_=ARRAY(Text))
    which = and_(
        own(Caller.anyone(owner=owner, default=default), Capture),
        # Written out, so that each part has its partial index.
        or_(
            literal_column("captures.status IN ('pending', 'working')", Boolean),
            literal_column("captures.status = 'failed'", Boolean),
        ),
        func.cardinality(Capture.memory_ids) == 0,
        or_(namespaces.is_(None), Capture.namespace == func.any(namespaces)),
    )
    return CompiledStatement(select(func.count()).select_from(Capture).where(which), plain=True)
