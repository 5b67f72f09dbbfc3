"""Visibility rules for captures and their usage counts."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_

from openmemory.access.readable import is_not_paused, is_visible
from openmemory.identity.caller import Caller


def own(caller: Caller, rows: Any) -> ColumnElement[bool]:
    """A condition that selects the rows a caller may see. An app sees its own rows, and none while it is paused.

    `rows` is a mapped class with user_id, app_id and namespace. Execute the query with `caller.parameters`.
    """
    mine = and_(rows.user_id == caller.user_id, is_visible(rows))
    return mine if caller.owner else and_(mine, rows.app_id == caller.app_id, is_not_paused())
