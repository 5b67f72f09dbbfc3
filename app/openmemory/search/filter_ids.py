"""Finds the ids of the memories that match a search's filters, before ranking, if the index cannot apply the filters.

Filtering after ranking would find a rare match late or never, because it is as likely to be among the nearest as any
other memory. So both retrieval arms get a small set of matches and rank only those. If there are many matches, enough
of them are among the nearest.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Integer, Uuid, bindparam, case, func, literal_column, select

from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.memories.models import IS_ACTIVE, Memory
from openmemory.search.filter_sql import Shape, by_shape, filtering, is_usual, predicate
from openmemory.search.filters import All, Comparison, Node, Operator
from openmemory.search.schemas import SearchQuery

MOST = 5_000
"""The maximum number of matches for the arms. If there are more, the nearest of all memories contain enough matches."""


def narrowed(query: SearchQuery) -> Node | None:
    """Combines all filters of a query into one."""
    lists = (
        ("namespace", query.namespaces),
        ("thread_id", query.threads),
        ("kind", query.kinds),
        ("app_id", query.app_ids),
        ("category", query.categories),
    )
    parts: list[Node] = [Comparison(field, Operator.IN, values) for field, values in lists if values]
    for operator, moment in ((Operator.GTE, query.created_from), (Operator.LTE, query.created_to)):
        if moment is not None:
            parts.append(Comparison("created_at", operator, (moment,)))
    if query.filter is not None:
        parts.append(query.filter)
    return All(tuple(parts)) if parts else None


def is_narrowed(query: SearchQuery) -> bool:
    """Returns True if the query has a filter that the index cannot apply."""
    return bool(query.filter or query.threads or query.categories or query.created_from or query.created_to)


async def matching(database: Database, caller: Caller, query: SearchQuery) -> tuple[UUID, ...] | None:
    """The ids of the user's active memories that match the query's filters, in no order.

    Returns None if the ids are not needed: the index applies all filters, or there are more than `MOST` matches. Does
    not check what the caller may read.

    Raises:
        Unavailable: Postgres does not answer.
    """
    if not is_narrowed(query):
        return None
    shape, binds = filtering(narrowed(query))
    async with database.planned() as tx:
        [(found,)] = await _statement(shape).rows(tx, binds | {"caller_user_id": caller.user_id, "most": MOST})
    return None if found is None else tuple(found)


@by_shape
def _statement(shape: Shape) -> CompiledStatement:
    """An array of all ids. Null if there are more than `most`, so that none of these are sent."""
    most = bindparam("most", type_=Integer)
    found = (
        select(Memory.id)
        .where(
            Memory.user_id == bindparam("caller_user_id", type_=Uuid()),
            IS_ACTIVE,
            predicate(shape),
        )
        .limit(most + 1)
        .subquery("found")
    )
    ids = func.coalesce(func.array_agg(found.c.id), literal_column("'{}'::uuid[]"))
    return CompiledStatement(
        select(case((func.count() <= most, ids))).select_from(found), plain=True, kept=is_usual(shape)
    )
