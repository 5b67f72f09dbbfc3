"""The apps of a user: lists them with their activity, and pauses them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, Uuid, bindparam, exists, func, select, text, update

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.access.schemas import RECENT_DAYS, AppDetail, AppPage, AppSort, AppSummary
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller


def _of_each_app(value: str, moment: str, rows: str, which: str = "") -> CompiledStatement:
    sql = f"""
        SELECT a.id, of.* FROM apps AS a CROSS JOIN LATERAL (
            SELECT count({value}), count({value}) FILTER (WHERE r.{moment} > now() - interval '{RECENT_DAYS} days'),
                max(r.{moment})
            FROM {rows} AS r WHERE r.app_id = a.id {which}) AS of
        WHERE a.id = ANY(:apps)
        """  # noqa: S608 - only constants are put in
    return CompiledStatement(bound(sql, {"apps": ARRAY(Uuid())}), plain=True)


_OF_USER = select(App.id, App.name).where(App.owner_id == bindparam("user", type_=Uuid)).cte("of_user")
_NAMES = CompiledStatement(
    select(_OF_USER.c.name).order_by(_OF_USER.c.name).add_cte(audit_log.inserted(_OF_USER)), plain=True
)
"""List the names of the apps of a `user`, and log that."""

_CREATED = _of_each_app("*", "created_at", "memories", "AND r.state <> 'deleted'")
"""Counts for each of the `apps` the memories that it wrote and that are not deleted, in all and lately."""

# Counts in the order of an index: PostgreSQL 16 and later need no sort for this, and it takes three quarters of the
# time of counting the rows of a SELECT DISTINCT.
_ACCESSED = _of_each_app("DISTINCT r.memory_id", "accessed_at", "memory_access_logs")
"""Counts for each of the `apps` the distinct memories that it accessed, in all and lately, with the time of the last
access."""

_DETAIL = text(
    """
    SELECT a.is_active, (SELECT count(*) FROM memories WHERE app_id = a.id) AS total_memories_created,
        l.total_memories_accessed, l.first_accessed, l.last_accessed
    FROM apps AS a CROSS JOIN LATERAL (
        SELECT count(*) AS total_memories_accessed, min(accessed_at) AS first_accessed,
            max(accessed_at) AS last_accessed
        FROM memory_access_logs WHERE app_id = a.id) AS l
    WHERE a.id = :app AND a.owner_id = :user
    """
)


_ACTIVITY_FIELDS = (
    "total_memories_created", "total_memories_accessed", "recently_created", "recently_accessed", "last_accessed",
    "last_created",
)  # fmt: skip


class Apps:
    """Lists and pauses apps. Only the user themself may, never an app."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(
        self,
        caller: Caller,
        *,
        name: str | None = None,
        is_active: bool | None = None,
        sort: AppSort = "name",
        descending: bool = False,
        activity: bool = False,
        page: int = 1,
        page_size: int = 10,
    ) -> AppPage:
        """Returns a page of the user's apps. `name` is a case-insensitive part of the name. `activity`: with what each
        did lately."""
        _only_owner(caller)
        caller.may_read()
        which: list[ColumnElement[bool]] = [App.owner_id == caller.user_id]
        if name:
            which.append(App.name.icontains(name, autoescape=True))
        if is_active is not None:
            which.append(App.is_active == is_active)
        columns = App.id, App.name, App.is_active
        by_name = App.name.desc() if descending else App.name.asc()
        async with self._database.transaction() as tx:
            apps = (await tx.execute(select(*columns).where(*which).order_by(by_name, App.id))).all()
            await audit_log.record(tx, caller, AuditAction.APP_LIST)
        total, some = len(apps), slice((page - 1) * page_size, page * page_size)
        if sort == "name":
            apps = apps[some]
        counts = await self._counts([app.id for app in apps])
        if sort != "name":
            key = 0 if sort == "memories" else 1
            apps = sorted(apps, key=lambda app: (counts[app.id][key] * (-1 if descending else 1), app.id))[some]
        fields = _ACTIVITY_FIELDS if activity else _ACTIVITY_FIELDS[:2]
        summaries = [
            AppSummary(
                **app._asdict(),
                **dict(zip(fields, counts[app.id], strict=False)),
            )
            for app in apps
        ]
        return AppPage(total=total, page=page, page_size=page_size, apps=summaries)

    async def _counts(self, apps: Sequence[UUID]) -> dict[UUID, tuple[Any, ...]]:
        """Returns for each app how much it wrote and accessed, in all and lately: the fields of `_ACTIVITY_FIELDS`.

        Uses two connections at once, because an app may have written and accessed very many.
        """
        created, accessed = await asyncio.gather(self._count_rows(_CREATED, apps), self._count_rows(_ACCESSED, apps))
        counts = {}
        for app in apps:
            (wrote, lately, newest), (read, recent, last) = created[app], accessed[app]
            counts[app] = wrote, read, lately, recent, last, newest
        return counts

    async def _count_rows(self, count: CompiledStatement, apps: Sequence[UUID]) -> dict[UUID, Sequence[Any]]:
        async with self._database.planned() as tx:
            return {app: counts for app, *counts in await count.rows(tx, {"apps": list(apps)})}

    async def names(self, caller: Caller) -> Sequence[str]:
        """Returns the names of all of the user's apps, in order."""
        _only_owner(caller)
        caller.may_read()
        async with self._database.statement() as tx:
            log_values = audit_log.parameters(caller, AuditAction.APP_LIST)
            return [name for (name,) in await _NAMES.rows(tx, {"user": caller.user_id, **log_values})]

    async def get(self, caller: Caller, app_id: UUID) -> AppDetail:
        """Returns one app with how much it wrote and read, and when.

        Raises:
            NotFound: the user has no such app.
        """
        _only_owner(caller)
        caller.may_read()
        async with self._database.transaction() as tx:
            row = (await tx.execute(_DETAIL, {"app": app_id, "user": caller.user_id})).one_or_none()
            if row is None:
                raise _no_app()
            await audit_log.record(tx, caller, AuditAction.APP_GET, [app_id])
        return AppDetail.model_validate(row)

    @retry_on_conflict
    async def set_active(self, caller: Caller, app_id: UUID, is_active: bool) -> None:
        """Pause or resume an app.

        Raises:
            NotFound: the user has no such app.
        """
        _only_owner(caller)
        caller.may_write()
        mine = (App.id == app_id) & (App.owner_id == caller.user_id)
        statement = update(App).where(mine).values(is_active=is_active, updated_at=func.now())
        async with self._database.transaction() as tx:
            if (await tx.execute(statement)).rowcount == 0:
                raise _no_app()
            await audit_log.record(tx, caller, AuditAction.APP_RESUME if is_active else AuditAction.APP_PAUSE, [app_id])


async def must_be_theirs(tx: Tx, caller: Caller, app_id: UUID) -> None:
    """Require that an app belongs to the caller's user.

    Raises:
        NotFound: it does not.
    """
    if not await tx.scalar(select(exists().where(App.id == app_id, App.owner_id == caller.user_id))):
        raise _no_app()


def paused_message(app: str, doing: str) -> str:
    """The message to a paused app."""
    return f"App {app} is currently paused on OpenMemory. Cannot {doing}."


async def refuse_paused(tx: Tx, apps: Collection[UUID], doing: str = "create new memories") -> None:
    """Require that none of the apps is paused.

    Raises:
        Forbidden: one of the apps is paused.
    """
    paused_app = await tx.scalar(select(App.name).where(App.id == func.any(list(apps)), ~App.is_active).limit(1))
    if paused_app is not None:
        raise Forbidden(paused_message(paused_app, doing), code="app_paused")


async def refuse_if_paused(tx: Tx, caller: Caller, doing: str = "create new memories") -> None:
    """Require that the calling app is not paused. The user themself may do everything.

    Raises:
        Forbidden: the app is paused.
    """
    if not caller.owner:
        await refuse_paused(tx, {caller.app_id}, doing)


async def refuse_unreadable(tx: Tx, caller: Caller, rows: Any, row_id: UUID) -> None:
    """Require that the caller may read the row under a name: the one that this transaction wrote, or an older one.

    An app stores under a name only what it may read. A refusal only for names in use would reveal them.

    Raises:
        Forbidden: a rule hides the row from the app.
    """
    readable = select(rows.id).where(rows.id == row_id, readable_by(caller, rows, states=("active", "deleted")))
    if not caller.owner and await tx.scalar(readable, caller.parameters) is None:
        raise Forbidden(
            "A rule hides from this app what it would store here. Nothing was stored.",
            code="not_readable",
            hint="The user can change the rule, or store it themself.",
        )


def _no_app() -> NotFound:
    return NotFound("App not found", code="app_not_found")


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and pause their apps")
