"""Lists the memories that will expire or be archived automatically, so that a user can act before."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, get_args

from sqlalchemy import (
    CTE,
    ColumnElement,
    Select,
    Subquery,
    and_,
    bindparam,
    func,
    literal,
    literal_column,
    null,
    select,
    true,
    union_all,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.types import Text, Uuid

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.lifecycle.schemas import (
    MAX_PAGE_SIZE,
    Action,
    CriteriaType,
    UpcomingItem,
    UpcomingPage,
    UpcomingQuery,
)
from openmemory.memories.models import ArchivePolicy, Memory, MemoryCategory, MemoryStatusHistory
from openmemory.memories.state import State


class Upcoming:
    """Lists upcoming expiries and archivings. Only the user may read them, never an app."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retry_on_conflict
    async def list(self, caller: Caller, query: UpcomingQuery) -> UpcomingPage:
        """The memories that will expire or be archived within some days, each once with its earliest action.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the days, the page or its size is invalid.
        """
        caller.must_be_owner("see what archive policies will do")
        caller.may_read()
        validation.between(query.within_days, "within_days", 0, validation.MAX_DAYS)
        validation.between(query.page, "page", 1, 1_000_000)
        validation.between(query.size, "size", 1, MAX_PAGE_SIZE)
        values = caller.parameters | {
            "within": query.within_days, "skipped": (query.page - 1) * query.size, "size": query.size,
        }  # fmt: skip
        async with self._database.transaction() as tx:
            rows = (await tx.execute(statement(caller), values)).all()
            items = [UpcomingItem.model_validate(row) for row in rows if row.memory_id is not None]
            ids = [item.memory_id for item in items]
            await access_log.record(tx, caller, AccessType.LIST, ids, {"operation": "upcoming"})
        return UpcomingPage(items=items, total=rows[0].total, page=query.page, size=query.size)


def statement(caller: Caller) -> Select[Any]:
    """A page of upcoming actions. Each row has the total; an empty page is one row without a memory.

    Binds `within`, `skipped`, `size` and the caller's parameters. For each action and criteria type there is one index
    scan, bounded by the policy that takes effect first, for any number of policies.
    """
    horizon = func.now() + _days(bindparam("within"))
    policies = (
        select(
            ArchivePolicy.id, ArchivePolicy.action, ArchivePolicy.criteria_type, ArchivePolicy.criteria_id,
            ArchivePolicy.criteria_name, _days(ArchivePolicy.days_to_archive).label("after"),
            (horizon - _days(ArchivePolicy.days_to_archive)).label("before"),
        )
        .where(ArchivePolicy.user_id == bindparam("caller_user_id"))
        .cte("policies")
    )  # fmt: skip
    visible = readable_by(caller, Memory, states=(State.ACTIVE,))
    own = select(
        Memory.id, Memory.expires_at.label("at"), literal("expire", Text()).label("action"),
        null().cast(Uuid()).label("policy_id"),
    ).where(visible, Memory.expires_at <= horizon)  # fmt: skip
    sorts = [(action, sort) for action in get_args(Action) for sort in get_args(CriteriaType)]
    coming = union_all(own, *(_by_policies(policies, visible, *sort) for sort in sorts)).cte("coming")
    each = select(coming).ext(distinct_on(coming.c.id))
    first = each.order_by(coming.c.id, coming.c.at, coming.c.action).cte("first")
    page = (
        select(first).order_by(first.c.at, first.c.id).offset(bindparam("skipped")).limit(bindparam("size"))
    ).subquery("shown")
    return _page_with_total(first, page)


def _page_with_total(first: CTE, page: Subquery) -> Select[Any]:
    count = select(func.count().label("total")).select_from(first).subquery("counted")
    items = (
        select(
            Memory.id.label("memory_id"), Memory.content, App.name.label("app_name"), Memory.namespace,
            Memory.created_at, page.c.at, page.c.action, page.c.policy_id,
        )
        .join_from(page, Memory, Memory.id == page.c.id)
        .join(App, App.id == Memory.app_id)
        .subquery("what")
    )  # fmt: skip
    return select(count, items).join_from(count, items, true(), isouter=True).order_by(items.c.at, items.c.memory_id)


def _by_policies(policies: CTE, visible: ColumnElement[bool], action: str, sort: str) -> Select[Any]:
    """The memories that policies of one action and criteria type affect, and when."""
    p = policies.alias(f"{action}_{sort}")
    of_sort = policies.alias(f"any_{action}_{sort}")
    soonest = (
        select(func.max(of_sort.c.before))
        .where(of_sort.c.action == _constant(action), of_sort.c.criteria_type == _constant(sort))
        .scalar_subquery()
    )
    if action == "archive":
        since = func.greatest(Memory.created_at, Memory.updated_at)
        is_due = and_(Memory.updated_at < soonest, Memory.created_at < soonest)
    else:
        since = func.greatest(Memory.created_at, _last_active())
        is_due = and_(Memory.created_at < soonest, Memory.expires_at.is_(None))
    at = since + p.c.after
    which: Sequence[ColumnElement[bool]] = (
        visible, is_due, p.c.action == _constant(action), p.c.criteria_type == _constant(sort), since < p.c.before,
    )  # fmt: skip
    query = select(Memory.id, at.label("at"), p.c.action, p.c.id.label("policy_id"))
    match sort:
        case "app":
            query = query.join_from(Memory, p, Memory.app_id == p.c.criteria_id)
        case "namespace":
            query = query.join_from(Memory, p, Memory.namespace == p.c.criteria_name)
        case "category":
            has_category = and_(
                MemoryCategory.memory_id == Memory.id, MemoryCategory.user_id == bindparam("caller_user_id")
            )
            query = query.join_from(Memory, MemoryCategory, has_category).join(
                p, MemoryCategory.category_id == p.c.criteria_id
            )
        case _:
            query = query.join_from(Memory, p, true())
    return query.where(*which)


def _last_active() -> ColumnElement[datetime]:
    last: ColumnElement[datetime] = (
        select(func.max(MemoryStatusHistory.changed_at))
        .where(MemoryStatusHistory.memory_id == Memory.id, MemoryStatusHistory.new_state == State.ACTIVE)
        .correlate(Memory)
        .scalar_subquery()
    )
    return last


def _days(number: Any) -> ColumnElement[Any]:
    return func.make_interval(0, 0, 0, number)


def _constant(value: str) -> ColumnElement[str]:
    return literal_column(f"'{value}'")
