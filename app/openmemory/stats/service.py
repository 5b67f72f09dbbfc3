"""Statistics of a user's memories: in total, by category, and by the app that wrote or accessed them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from sqlalchemy import select

from openmemory.access.apps import must_be_theirs
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.memories.listing import pages, ranked
from openmemory.memories.listing.pages import ListAccess
from openmemory.memories.repository import KEPT_STATES
from openmemory.memories.schemas import MemoryQuery
from openmemory.memories.service import MAX_PAGE_SIZE
from openmemory.memories.state import State
from openmemory.serialization.zones import day_start, today
from openmemory.stats import extents, queries
from openmemory.stats.schemas import (
    MAX_DAYS,
    Accessed,
    AccessedMemory,
    AppAccesses,
    AppDay,
    AppMemories,
    AppRow,
    CategoryList,
    CategoryRow,
    Extent,
    MemoryOfApp,
    Profile,
)


class Stats:
    """Counts and lists without a search query. Only the user may read those about apps, never an app."""

    def __init__(self, database: Database, rates: RateLimiter, intake: Intake) -> None:
        self._database = database
        self._intake = intake
        self._rates = rates

    async def profile(self, caller: Caller) -> Profile:
        """The number of the user's memories that are not deleted, and all of the user's apps, by name.

        Raises:
            Forbidden: the caller is an app.
        """
        caller.must_be_owner("see how much there is")
        caller.may_read()
        columns = (App.id, App.owner_id, App.name, App.description, App.metadata_.label("metadata_"), App.is_active)
        query = select(*columns, App.created_at, App.updated_at).where(App.owner_id == caller.user_id)
        total = await pages.total(self._database, caller, MemoryQuery(states=KEPT_STATES))
        async with self._database.transaction() as tx:
            apps = [AppRow.model_validate(row) for row in await tx.execute(query.order_by(App.name, App.id))]
            await audit_log.record(tx, caller, AuditAction.STATS_READ)
        return Profile(total_memories=total, total_apps=len(apps), apps=apps)

    async def categories(self, caller: Caller) -> CategoryList:
        """The categories of the memories that the caller may read and that are neither archived nor deleted."""
        caller.may_read()
        await self._rates.search(caller)
        states = (State.ACTIVE, State.PAUSED) if caller.owner else (State.ACTIVE,)
        async with self._database.planned() as tx:
            rows = [CategoryRow.model_validate(row) for row in await queries.categories(tx, caller, states)]
        return CategoryList(categories=rows, total=len(rows))

    async def extent(self, caller: Caller, query: MemoryQuery, field: str) -> Extent:
        """The number of memories that match and that the caller may read, by category and by the values of a field of
        their metadata, and from when to when they are.

        Raises:
            Invalid: a filter is invalid.
        """
        caller.may_read()
        query = self._intake.narrowed(caller, query)
        await self._rates.search(caller)
        async with self._database.transaction() as tx:
            result = await extents.extent(tx, caller, query, field)
            await audit_log.record(tx, caller, AuditAction.STATS_READ)
        return result

    async def daily(self, caller: Caller, *, days: int = 30, app_id: UUID | None = None) -> Sequence[AppDay]:
        """The writes and accesses of each app of the user, or of one, on each of the last days, today included. Days
        without either are left out. Days are those of the caller's time zone.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the number of days is not from 1 to 366.
        """
        caller.must_be_owner("see what their apps wrote and read")
        caller.may_read()
        validation.between(days, "days", 1, MAX_DAYS)
        first = today(caller.timezone) - timedelta(days=days - 1)
        starts = [day_start(first + timedelta(days=number), caller.timezone) for number in range(days)]
        parameters = {"user": caller.user_id, "app": app_id, "since": starts[0], "days": starts}
        async with self._database.planned() as tx:
            rows = await queries.DAYS.rows(tx, parameters)
            await audit_log.record(tx, caller, AuditAction.STATS_READ)
        return [
            AppDay(
                app_id=id_, app_name=name, day=first + timedelta(days=number - 1), written=written, accessed=accessed
            )
            for id_, name, number, written, accessed in rows
        ]

    async def app_memories(self, caller: Caller, app_id: UUID, *, page: int = 1, page_size: int = 10) -> AppMemories:
        """The memories that one app wrote and that are not deleted, newest first.

        Raises:
            Forbidden: the caller is an app.
            NotFound: no such app of this user.
        """
        offset = _start(caller, page, page_size)
        query = MemoryQuery(states=KEPT_STATES, app_ids=(app_id,))
        async with self._database.statement() as tx:
            await must_be_theirs(tx, caller, app_id)
        records, total = await pages.page(self._database, ListAccess(caller), query, offset=offset, limit=page_size)
        memories = [MemoryOfApp.of(record) for record in records]
        return AppMemories(total=total, page=page, page_size=page_size, memories=memories)

    async def app_accessed(self, caller: Caller, app_id: UUID, *, page: int = 1, page_size: int = 10) -> AppAccesses:
        """The memories in any state that one app accessed, most accessed first.

        Raises:
            Forbidden: the caller is an app.
            NotFound: no such app of this user.
        """
        offset = _start(caller, page, page_size)
        async with self._database.statement() as tx:
            await must_be_theirs(tx, caller, app_id)
        records, total = await ranked.accessed(self._database, caller, app_id, offset=offset, limit=page_size)
        memories = [Accessed(memory=AccessedMemory.of(record), access_count=count) for record, count in records]
        return AppAccesses(total=total, page=page, page_size=page_size, memories=memories)


def _start(caller: Caller, page: int, page_size: int) -> int:
    """Checks the caller and the page. Returns the offset of the page."""
    caller.must_be_owner("see what their apps wrote and read")
    caller.may_read()
    validation.between(page, "page", 1, 1_000_000)
    validation.between(page_size, "page_size", 1, MAX_PAGE_SIZE)
    return (page - 1) * page_size
