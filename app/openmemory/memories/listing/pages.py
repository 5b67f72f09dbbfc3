"""Pages of lists: the memories of a page, the total number, and the log of the reads.

Independent queries run on two connections at once: the total is counted while the page is found, read and logged, and
the two halves of a user's texts are scanned in parallel. A page in the second half of a list is read from the end. No
task holds a connection while it waits for another.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.id_partitions import IdPartition
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.memories import repository
from openmemory.memories.listing import statements
from openmemory.memories.listing.criteria import ListCriteria, parameters
from openmemory.memories.listing.statements import SORTABLE, Part
from openmemory.memories.schemas import MemoryQuery, MemoryRecord

MAX_SORTED_HITS = 2_000
"""Up to this number, all hits of a text search are fetched and sorted. With more hits, the page is found by scanning in
list order, because most memories near the page are hits."""

SAMPLE = 400
"""The number of newest memories that are sampled to estimate how common a text is."""

COMMON = 0.1
"""If at least this share of the sample contains the text, a page is found by scanning in list order."""

MAX_SINGLE_READS = 10_000
"""The number of texts that can be read one by one in the time that a scan of all of 100,000 takes."""

NEAR = 1_000
"""The largest offset at which a page is read from the start at the same time as the total is counted."""


class Slice(NamedTuple):
    """A range of the matches in their order. `backwards`: counted and read from the end."""

    offset: int
    limit: int
    backwards: bool = False

    def of(self, total: int) -> Slice:
        """The same range of `total` matches, counted from the nearer end."""
        if self.offset <= total // 2:
            return self
        limit = max(0, min(self.limit, total - self.offset))
        return Slice(total - self.offset - limit, limit, backwards=True)

    def within(self, before: int, size: int) -> Slice:
        """The part of the range in a group of `size` matches after `before` others. Empty if its limit is below one."""
        skip = max(0, self.offset - before)
        return Slice(skip, min(size - skip, self.offset + self.limit - before - skip))

    @property
    def binds(self) -> dict[str, int]:
        """The parameters that the queries bind."""
        return {"offset": self.offset, "limit": self.limit, "enough": self.offset + self.limit}


class ListAccess(NamedTuple):
    """The caller of a read, and how the log records it. `hashes`: also log the hashes of the texts."""

    caller: Caller
    access: AccessType = AccessType.LIST
    hashes: bool = False


class ListedPage(NamedTuple):
    """A page of memories, and the total number."""

    records: list[MemoryRecord]
    total: int


async def count(database: Database, caller: Caller, query: MemoryQuery) -> int:
    """The number of matching memories that the caller may read."""
    return await _Pages(database, ListAccess(caller), query).total()


async def page(database: Database, look: ListAccess, query: MemoryQuery, wanted: Slice) -> ListedPage:
    """A range of the matching memories that the caller may read, and the total number. Logs the read.

    Equal sort keys are ordered by id. Within an app the newest memories come first.

    Raises:
        Invalid: `sort` names no sortable column.
        Unavailable: PostgreSQL does not answer.
    """
    if query.sort not in SORTABLE:
        raise Invalid("sort_column", f"must be one of {', '.join(SORTABLE)}", hint="Invalid sort column")
    if query.categories and not query.category_ids:
        async with database.statement() as tx:
            named = await statements.CATEGORIES_NAMED.rows(tx, {"names": list(query.categories)})
        query = replace(query, categories=(), category_ids=tuple(id_ for (id_,) in named))
        if not named:
            return ListedPage(await shown(database, look, query, []), 0)
    pages = _Pages(database, look, query)
    if query.text:
        return await pages.holding(wanted)
    if query.sort == "app_name":
        return await pages.by_app(wanted, None)
    return await pages.leafed(wanted)


async def total(database: Database, caller: Caller, query: MemoryQuery) -> int:
    """The number of matching memories that the caller may read. Ignores the text filter."""
    return await _Pages(database, ListAccess(caller), query).total()


@retry_on_conflict
async def shown(database: Database, look: ListAccess, query: MemoryQuery, ids: list[UUID]) -> list[MemoryRecord]:
    """The memories with these ids, in order, if they still match all filters except the text. Logs the read."""
    statement = statements.shown(ListCriteria.of(look.caller, query), hashes=look.hashes)
    binds = parameters(look.caller, query) | audit_log.parameters(
        look.caller, AuditAction(f"memory.{look.access.value}")
    )
    logged = access_log.parameters(look.caller, look.access)
    async with database.statement() as tx:
        return [repository.record(row) for row in await statement.rows(tx, {**binds, **logged, "ids": ids})]


class _Pages:
    """The pages of one list."""

    def __init__(self, database: Database, look: ListAccess, query: MemoryQuery) -> None:
        self._database = database
        self._look = look
        self._query = query
        self._asked = ListCriteria.of(look.caller, query)
        self._binds = parameters(look.caller, query)

    async def total(self) -> int:
        """The number of matches."""
        partitions = list(IdPartition) if self._asked.only_by_category else [None]
        return sum(await asyncio.gather(*(self._number(statements.total(self._asked, each)) for each in partitions)))

    async def leafed(self, wanted: Slice, middle: str | None = None) -> ListedPage:
        """Reads the page in sort order; the total is counted at the same time."""
        counting = self.total() if middle is None else self._count(middle)
        if wanted.offset <= NEAR:
            records, total = await asyncio.gather(self._read(wanted), counting)
            return ListedPage(records, total)
        return await self._of_so_many(wanted, await counting)

    async def holding(self, wanted: Slice) -> ListedPage:
        """A page of the memories that contain a text."""
        [(held, middle)] = await self._rows(statements.sample(self._asked), sample=SAMPLE)
        middle = middle or ""
        by_app = self._query.sort == "app_name"
        if held >= COMMON * SAMPLE and self._query.is_of("text"):
            return await (self.by_app(wanted, middle) if by_app else self.leafed(wanted, middle))
        total, hits = await self._hits(middle)
        if hits is None:
            return await (self.by_app(wanted, middle) if by_app else self._of_so_many(wanted, total))
        ordered = statements.in_order(self._query.sort, descending=self._query.descending)
        ids = [id_ for (id_,) in await self._rows(ordered, ids=hits, **wanted.binds)] if hits else []
        return ListedPage(await self._shown(ids), total)

    async def by_app(self, wanted: Slice, middle: str | None) -> ListedPage:
        """A page in the order of the app names. `middle` is set if the memories must contain a text."""
        parts: Iterable[Part | IdPartition | None] = [None] if middle is None else Part
        if self._asked.only_by_category:
            parts = IdPartition
        counted = (self._rows(statements.sizes(self._asked, part), middle=middle) for part in parts)
        sizes: Counter[UUID] = Counter()
        for rows in await asyncio.gather(*counted):
            sizes.update(dict(rows))
        in_order = statements.apps_in_order(descending=self._query.descending)
        before = 0
        some: dict[UUID, Slice] = {}
        for (app_id,) in await self._rows(in_order, ids=list(sizes)):
            part = wanted.within(before, sizes[app_id])
            if part.limit > 0:
                some[app_id] = part
            before += sizes[app_id]
        if len(some) == 1:  # the most common case: read from the nearer end
            some = {app_id: part.of(sizes[app_id]) for app_id, part in some.items()}
        return ListedPage(await self._shown(await self._of_apps(some) if some else []), before)

    async def _of_apps(self, parts: dict[UUID, Slice]) -> list[UUID]:
        backwards = any(part.backwards for part in parts.values())
        skips, takes = [part.offset for part in parts.values()], [part.limit for part in parts.values()]
        statement = statements.of_apps(self._asked, backwards=backwards)
        ids = [id_ for (id_,) in await self._rows(statement, apps=list(parts), skips=skips, takes=takes)]
        return ids[::-1] if backwards else ids

    async def _hits(self, middle: str) -> tuple[int, list[UUID] | None]:
        """The number of memories that contain the text, and all their ids up to `MAX_SORTED_HITS`."""
        if re.search(r"\w{3}", self._query.text or ""):  # the trigram index needs three letters in a row
            queries = [statements.hits(self._asked, None)]
        elif await self._few_are_assigned():
            queries = [statements.hits(self._asked, None, filed_first=True)]
        else:
            queries = [statements.hits(self._asked, part) for part in Part]
        found = (self._rows(statement, middle=middle, few=MAX_SORTED_HITS) for statement in queries)
        rows = [row for (row,) in await asyncio.gather(*found)]
        total = sum(count for count, _ in rows)
        return total, [id_ for _, ids in rows for id_ in ids or ()] if total <= MAX_SORTED_HITS else None

    async def _few_are_assigned(self) -> bool:
        """Returns True if the category filter matches so few memories that they should be read first."""
        if not self._asked.filters & {"category_id", "category_ids"}:
            return False
        return await self._number(statements.assignments(self._asked, MAX_SINGLE_READS)) <= MAX_SINGLE_READS

    async def _count(self, middle: str) -> int:
        """The number of memories that contain a common text."""
        counted = (self._number(statements.counted(self._asked, part), middle=middle) for part in Part)
        return sum(await asyncio.gather(*counted))

    async def _of_so_many(self, wanted: Slice, total: int) -> ListedPage:
        return ListedPage(await self._read(wanted.of(total)) if wanted.offset < total else await self._shown([]), total)

    async def _read(self, wanted: Slice) -> list[MemoryRecord]:
        rows = await self._rows(statements.ids(self._asked, backwards=wanted.backwards), **wanted.binds)
        ids = [id_ for (id_,) in rows]
        return await self._shown(ids[::-1] if wanted.backwards else ids)

    async def _shown(self, ids: list[UUID]) -> list[MemoryRecord]:
        return await shown(self._database, self._look, self._query, ids)

    async def _number(self, statement: CompiledStatement, **binds: Any) -> int:
        [(number,)] = await self._rows(statement, **binds)
        return int(number)

    async def _rows(self, statement: CompiledStatement, **binds: Any) -> list[Any]:
        async with self._database.planned() as tx:
            return await statement.rows(tx, self._binds | binds)
