"""The ids of the memories that a search is narrowed to, where the index cannot tell: found before anything is ranked.

Ranking first and looking at the filter afterwards would find a rare match late or never: it is as likely to be among
the nearest as any other. So a few matches are given to both arms, which rank nothing else; of many, enough are among
the nearest.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import Integer, Uuid, bindparam, case, func, literal_column, select

from openmemory.database.compiled import Prepared
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.memories.models import IS_ACTIVE, Memory
from openmemory.search.filter_sql import Shape, by_shape, filtering, is_usual, predicate
from openmemory.search.filters import All, Comparison, Node, Operator
from openmemory.search.schemas import SearchQuery

MOST = 5_000
"""Matches that are given to the arms. Of more, the nearest are found among the nearest of all."""


def narrowed(query: SearchQuery) -> Node | None:
    """All that a query asks of a memory besides its words, as one filter."""
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
    """Whether something is asked that the index cannot tell."""
    return bool(query.filter or query.threads or query.categories or query.created_from or query.created_to)


async def matching(database: Database, caller: Caller, query: SearchQuery) -> tuple[UUID, ...] | None:
    """The ids of the user's active memories that the query is narrowed to, in no order; None if it need not be known:
    the index decides all that is asked, or they are more than `MOST`.

    What the caller may read of them is not decided here.

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
def _statement(shape: Shape) -> Prepared:
    """An array of all ids; null if they are more than `most`, so that none of these are sent."""
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
    return Prepared(select(case((func.count() <= most, ids))).select_from(found), plain=True, kept=is_usual(shape))
