"""The apps of a user: which there are, what they did, and pausing them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import ColumnElement, column, distinct, func, literal_column, select, table, update

from app.access import journal
from app.access.caller import Caller
from app.access.journal import Event
from app.access.models import App
from app.database import Database
from app.errors import NotFound

AppSort = Literal["name", "memories", "memories_accessed"]

# By name only: the models of memories and their log stand above this package.
_MEMORIES = table("memories", column("app_id"), column("state"))
_ACCESSES = table("memory_access_logs", column("app_id"), column("memory_id"))


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
        accessed = (
            select(func.count(distinct(_ACCESSES.c.memory_id)))
            .where(_ACCESSES.c.app_id == App.id)
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
                raise NotFound("App not found", code="app_not_found")
            await journal.record(tx, caller, Event.APP_RESUME if is_active else Event.APP_PAUSE, [app_id])


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and pause their apps")
