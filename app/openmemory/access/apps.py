"""The apps of a user: lists them with their activity, and pauses them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import (
    ARRAY,
    ColumnElement,
    ScalarSelect,
    Uuid,
    bindparam,
    column,
    exists,
    func,
    literal_column,
    select,
    table,
    true,
    update,
)

from openmemory.access.models import App
from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database, Tx
from openmemory.database.id_partitions import IdPartition
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.serialization.timestamps import NaiveTime

AppSort = Literal["name", "memories", "memories_accessed"]

# Referenced by table name: the models of memories and their log belong to higher-level packages.
_MEMORIES = table("memories", column("app_id"), column("state"))
_ACCESSES = table("memory_access_logs", column("app_id"), column("memory_id"), column("accessed_at"))


def _of_each_app(count: ScalarSelect[int]) -> CompiledStatement:
    return CompiledStatement(
        select(App.id, count).where(App.id == func.any(bindparam("apps", type_=ARRAY(Uuid)))), plain=True
    )


_CREATED = _of_each_app(
    select(func.count())
    .select_from(_MEMORIES)
    .where(_MEMORIES.c.app_id == App.id, _MEMORIES.c.state != literal_column("'deleted'"))
    .scalar_subquery()
)


def _accessed(half: IdPartition) -> ScalarSelect[int]:
    mine = _ACCESSES.c.app_id == App.id, half.of(_ACCESSES.c.memory_id)
    # Counts in the order of an index: PostgreSQL 16 and later need no sort for this, and it takes three quarters of the
    # time of counting the rows of a SELECT DISTINCT.
    different = func.count(_ACCESSES.c.memory_id.distinct())
    return select(different).where(*mine).correlate(App).scalar_subquery()


_ACCESSED = [_of_each_app(_accessed(half)) for half in IdPartition]
"""Counts for the `apps`: the memories they wrote that are not deleted, and the distinct memories they accessed."""


class AppSummary(BaseModel):
    """An app and how much it wrote and read."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    name: str
    is_active: bool = Field(description="A paused app (false) neither reads nor writes.")
    total_memories_created: int = Field(description="Memories it wrote that are not deleted.")
    total_memories_accessed: int = Field(description="Different memories it accessed.")


class AppPage(BaseModel):
    """A page of a user's apps."""

    total: int
    page: int
    page_size: int
    apps: list[AppSummary]


class AppDetail(BaseModel):
    """One app. It counts otherwise than the list of apps does: what is deleted too, and every access."""

    model_config = ConfigDict(from_attributes=True)

    is_active: bool = Field(description="A paused app (false) neither reads nor writes.")
    total_memories_created: int = Field(description="Memories it wrote, deleted ones too.")
    total_memories_accessed: int = Field(description="Its accesses; several to one memory count each.")
    first_accessed: NaiveTime | None = Field(description="UTC without an offset.")
    last_accessed: NaiveTime | None = Field(description="UTC without an offset.")


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
        page: int = 1,
        page_size: int = 10,
    ) -> AppPage:
        """Returns a page of the user's apps. `name` is a case-insensitive part of the name."""
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
        created, accessed = await self._counts([app.id for app in apps])
        if sort != "name":
            counts = created if sort == "memories" else accessed
            apps = sorted(apps, key=lambda app: (counts[app.id] * (-1 if descending else 1), app.id))[some]
        summaries = [
            AppSummary(
                id=app.id,
                name=app.name,
                is_active=app.is_active,
                total_memories_created=created[app.id],
                total_memories_accessed=accessed[app.id],
            )
            for app in apps
        ]
        return AppPage(total=total, page=page, page_size=page_size, apps=summaries)

    async def _counts(self, apps: Sequence[UUID]) -> tuple[dict[UUID, int], dict[UUID, int]]:
        """Returns for each app how many memories it wrote that are not deleted, and how many distinct ones it accessed.

        Uses three connections at once, because an app may have written and accessed very many.
        """
        counted = (self._counted(count, apps) for count in (_CREATED, *_ACCESSED))
        created, *accessed = await asyncio.gather(*counted)
        return created, {app: sum(half[app] for half in accessed) for app in apps}

    async def _counted(self, count: CompiledStatement, apps: Sequence[UUID]) -> dict[UUID, int]:
        async with self._database.planned() as tx:
            return dict(await count.rows(tx, {"apps": list(apps)}))

    async def get(self, caller: Caller, app_id: UUID) -> AppDetail:
        """Returns one app with how much it wrote and read, and when.

        Raises:
            NotFound: the user has no such app.
        """
        _only_owner(caller)
        caller.may_read()
        created = select(func.count()).select_from(_MEMORIES).where(_MEMORIES.c.app_id == app_id).scalar_subquery()
        accesses = (
            select(
                func.count().label("count"),
                func.min(_ACCESSES.c.accessed_at).label("first"),
                func.max(_ACCESSES.c.accessed_at).label("last"),
            )
            .where(_ACCESSES.c.app_id == app_id)
            .subquery()
        )
        query = select(
            App.is_active,
            created.label("total_memories_created"),
            accesses.c.count.label("total_memories_accessed"),
            accesses.c.first.label("first_accessed"),
            accesses.c.last.label("last_accessed"),
        ).join(accesses, true())
        async with self._database.transaction() as tx:
            row = (await tx.execute(query.where(App.id == app_id, App.owner_id == caller.user_id))).one_or_none()
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
        changed = update(App).where(mine).values(is_active=is_active, updated_at=func.now())
        async with self._database.transaction() as tx:
            if (await tx.execute(changed)).rowcount == 0:
                raise _no_app()
            await audit_log.record(tx, caller, AuditAction.APP_RESUME if is_active else AuditAction.APP_PAUSE, [app_id])


async def must_be_theirs(tx: Tx, caller: Caller, app_id: UUID) -> None:
    """Require that an app belongs to the caller's user.

    Raises:
        NotFound: it does not.
    """
    if not await tx.scalar(select(exists().where(App.id == app_id, App.owner_id == caller.user_id))):
        raise _no_app()


async def refuse_paused(tx: Tx, apps: Collection[UUID], doing: str = "create new memories") -> None:
    """Require that none of the apps is paused.

    Raises:
        Forbidden: one of the apps is paused.
    """
    paused = await tx.scalar(select(App.name).where(App.id == func.any(list(apps)), ~App.is_active).limit(1))
    if paused is not None:
        raise Forbidden(f"App {paused} is currently paused on OpenMemory. Cannot {doing}.", code="app_paused")


async def refuse_if_paused(tx: Tx, caller: Caller, doing: str = "create new memories") -> None:
    """Require that the calling app is not paused. The user themself may do everything.

    Raises:
        Forbidden: the app is paused.
    """
    if not caller.owner:
        await refuse_paused(tx, {caller.app_id}, doing)


def _no_app() -> NotFound:
    return NotFound("App not found", code="app_not_found")


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and pause their apps")
