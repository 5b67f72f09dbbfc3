"""Pages of lists: the memories of a page, the total number, and the log of the reads."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple
from uuid import UUID

from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.memories import repository
from openmemory.memories.listing import statements
from openmemory.memories.listing.criteria import ListCriteria, parameters
from openmemory.memories.listing.statements import SORTABLE
from openmemory.memories.schemas import MemoryQuery, MemoryRecord


class ListAccess(NamedTuple):
    """The caller of a read, and how the log records it. `hashes`: also log the hashes of the texts."""

    caller: Caller
    access: AccessType = AccessType.LIST
    hashes: bool = False


class ListedPage(NamedTuple):
    """A page of memories, and the total number."""

    records: list[MemoryRecord]
    total: int


async def page(database: Database, context: ListAccess, query: MemoryQuery, *, offset: int, limit: int) -> ListedPage:
    """A range of the matching memories that the caller may read, and the total number. Logs the read.

    Equal sort keys are ordered by id. Within an app the newest memories come first.

    If an index has the order, the total is counted on another connection while the page is read. Otherwise one
    statement finds all matches for both.

    Raises:
        Invalid: `sort` names no sortable column.
        Unavailable: PostgreSQL does not answer.
    """
    if query.sort not in SORTABLE:
        raise Invalid("sort_column", f"must be one of {', '.join(SORTABLE)}", hint="Invalid sort column")
    criteria = ListCriteria.of(context.caller, query)
    binds = parameters(context.caller, query) | {"offset": offset, "limit": limit, "last": offset + limit}
    if not statements.in_index_order(criteria):
        rows = await planned_rows(database, statements.total_and_ids(criteria), binds)
        ids = [id_ for _, id_ in rows if id_ is not None]
        return ListedPage(await fetch_records(database, context, query, ids), rows[0][0])

    async def read() -> list[MemoryRecord]:
        rows = await planned_rows(database, statements.ids(criteria), binds)
        return await fetch_records(database, context, query, [id_ for (id_,) in rows])

    return ListedPage(*await asyncio.gather(read(), total(database, context.caller, query)))


async def total(database: Database, caller: Caller, query: MemoryQuery) -> int:
    """The number of matching memories that the caller may read."""
    [(number,)] = await planned_rows(
        database, statements.total(ListCriteria.of(caller, query)), parameters(caller, query)
    )
    return int(number)


@retry_on_conflict
async def fetch_records(
    database: Database, context: ListAccess, query: MemoryQuery, ids: list[UUID]
) -> list[MemoryRecord]:
    """The memories with these ids, in order, if they still match all filters except the text. Logs the read."""
    statement = statements.records(ListCriteria.of(context.caller, query), hashes=context.hashes)
    binds = parameters(context.caller, query) | audit_log.parameters(
        context.caller, AuditAction(f"memory.{context.access.value}")
    )
    log_values = access_log.parameters(context.caller, context.access)
    async with database.statement() as tx:
        return [repository.record(row) for row in await statement.rows(tx, {**binds, **log_values, "ids": ids})]


async def planned_rows(database: Database, statement: CompiledStatement, values: dict[str, Any]) -> list[Any]:
    """The rows of a statement that is planned for these values."""
    async with database.planned() as tx:
        return await statement.rows(tx, values)
