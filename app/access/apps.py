"""The apps of a user: which there are, what they did, and pausing them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, column, exists, func, literal_column, select, table, true, update

from app.access import journal
from app.access.caller import Caller
from app.access.journal import Event
from app.access.models import App
from app.again import again
from app.database import Database, Tx
from app.errors import NotFound
from app.times import NaiveTime

AppSort = Literal["name", "memories", "memories_accessed"]

# By name only: the models of memories and their log stand above this package.
_MEMORIES = table("memories", column("app_id"), column("state"))
_ACCESSES = table("memory_access_logs", column("app_id"), column("memory_id"), column("accessed_at"))


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
    """Listing and pausing apps. Only the user may, never an app."""

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
        """A page of the user's apps. `name` is a part of the name, in any case."""
        _only_owner(caller)
        caller.may_read()
        which: list[ColumnElement[bool]] = [App.owner_id == caller.user_id]
        if name:
            which.append(App.name.icontains(name, autoescape=True))
        if is_active is not None:
            which.append(App.is_active == is_active)
        created = (
            select(func.count())
            .select_from(_MEMORIES)
            .where(_MEMORIES.c.app_id == App.id, _MEMORIES.c.state != literal_column("'deleted'"))
            .scalar_subquery()
            .label("total_memories_created")
        )
        # An index has them in this order: counting them as distinct would sort them once more.
        different = select(_ACCESSES.c.memory_id).where(_ACCESSES.c.app_id == App.id).distinct().correlate(App)
        accessed = (
            select(func.count())
            .select_from(different.subquery())
            .correlate(App)
            .scalar_subquery()
            .label("total_memories_accessed")
        )
        by = {"name": App.name, "memories": created, "memories_accessed": accessed}[sort]
        query = (
            select(App.id, App.name, App.is_active, created, accessed)
            .where(*which)
            .order_by(by.desc() if descending else by.asc(), App.id)
            .limit(page_size)
            .offset((page - 1) * page_size)
        )
        async with self._database.transaction() as tx:
            apps = [AppSummary.model_validate(row) for row in await tx.execute(query)]
            total = await tx.scalar(select(func.count()).select_from(App).where(*which))
            await journal.record(tx, caller, Event.APP_LIST)
        return AppPage(total=total or 0, page=page, page_size=page_size, apps=apps)

    async def get(self, caller: Caller, app_id: UUID) -> AppDetail:
        """One app with how much it wrote and read, and when.

        Raises:
            NotFound: no such app of this user.
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
            await journal.record(tx, caller, Event.APP_GET, [app_id])
        return AppDetail.model_validate(row)

    @again
    async def set_active(self, caller: Caller, app_id: UUID, is_active: bool) -> None:
        """Pause an app, or let it go on.

        Raises:
            NotFound: no such app of this user.
        """
        _only_owner(caller)
        caller.may_write()
        mine = (App.id == app_id) & (App.owner_id == caller.user_id)
        changed = update(App).where(mine).values(is_active=is_active, updated_at=func.now())
        async with self._database.transaction() as tx:
            if (await tx.execute(changed)).rowcount == 0:
                raise _no_app()
            await journal.record(tx, caller, Event.APP_RESUME if is_active else Event.APP_PAUSE, [app_id])


async def must_be_theirs(tx: Tx, caller: Caller, app_id: UUID) -> None:
    """Refuse an app that is not the caller's user's.

    Raises:
        NotFound: it is not.
    """
    if not await tx.scalar(select(exists().where(App.id == app_id, App.owner_id == caller.user_id))):
        raise _no_app()


def _no_app() -> NotFound:
    return NotFound("App not found", code="app_not_found")


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and pause their apps")
