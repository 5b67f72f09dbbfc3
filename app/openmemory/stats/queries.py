"""Lists the categories in use, through `readable_by`, and counts what apps did on each day."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, DateTime, Uuid, bindparam, literal_column, select, true

from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS
from openmemory.memories.models import Category, Memory, MemoryCategory
from openmemory.memories.state import State

DAYS = CompiledStatement(
    bound(
        """
        SELECT a.id AS app_id, a.name AS app_name, each.day, sum(each.written)::int AS written,
            sum(each.accessed)::int AS accessed
        FROM apps AS a CROSS JOIN LATERAL (
            SELECT width_bucket(m.created_at, :days) AS day, count(*) AS written, 0 AS accessed
            FROM memories AS m WHERE m.app_id = a.id AND m.created_at >= :since AND m.created_at <= now() GROUP BY 1
            UNION ALL
            SELECT width_bucket(l.accessed_at, :days), 0, count(*)
            FROM memory_access_logs AS l
            WHERE l.app_id = a.id AND l.accessed_at >= :since AND l.accessed_at <= now() GROUP BY 1
        ) AS each
        WHERE a.owner_id = :user AND (CAST(:app AS uuid) IS NULL OR a.id = :app)
        GROUP BY a.id, each.day ORDER BY a.id, each.day
        """,
        {"user": Uuid(), "app": Uuid(), "since": DateTime(timezone=True), "days": ARRAY(DateTime(timezone=True))},
    )
)
"""Count the writes and accesses of the apps of a `user`, or of one `app`, on each day `since` then. `days` has the
first moment of each day; a day is its number there, from 1. Days without either are left out."""


async def categories(tx: Tx, caller: Caller, states: tuple[State, ...]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name. Logs that they were listed.

    Skips from one category of the user to the next (loose index scan) and stops at the first such memory in each.
    """
    logged = audit_log.parameters(caller, AuditAction.CATEGORY_LIST)
    return await _categories(caller.owner, caller.default, states).rows(tx, {**caller.parameters, **logged})


@lru_cache(maxsize=16)
def _categories(owner: bool, default: Default, states: tuple[State, ...]) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    first = select(MemoryCategory.category_id).where(OWN_ASSIGNMENTS).order_by(MemoryCategory.category_id)
    first = first.limit(literal_column("1"))
    filed = select(first.scalar_subquery().label("category_id")).cte("filed", recursive=True)
    following = first.where(MemoryCategory.category_id > filed.c.category_id).correlate(filed).scalar_subquery()
    filed = filed.union_all(select(following).where(filed.c.category_id.is_not(None)))
    one = (
        select(literal_column("1").label("one"))
        .select_from(MemoryCategory)
        .join(Memory, Memory.id == MemoryCategory.memory_id)
        .where(
            OWN_ASSIGNMENTS,
            MemoryCategory.category_id == filed.c.category_id,
            Memory.user_id == bindparam("caller_user_id", type_=Uuid),
            readable_by(caller, Memory, states=states),
        )
        .limit(literal_column("1"))
        .lateral("one")
    )
    categories = (
        select(*Category.__table__.columns)
        .join(filed, filed.c.category_id == Category.id)
        .join(one, true())
        .cte("found")
    )
    return CompiledStatement(select(categories).order_by(categories.c.name).add_cte(audit_log.inserted(categories)))
