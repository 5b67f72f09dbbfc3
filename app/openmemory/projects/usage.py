"""Counts the tokens that context packs and MCP tools give, measured on their texts. No query is kept."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, exc, false, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.names import PERSON
from openmemory.memories import validation
from openmemory.projects import spelling
from openmemory.projects.models import ReadUsage
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.schemas import (
    AppToolCalls,
    DayOfReads,
    DayOfTools,
    ReadReport,
    TokensGiven,
    ToolCalls,
    ToolReport,
)

_COUNTS = ("calls", "items", "candidates", "used", "saved", "truncated", "dropped")
_OF_TOOLS = ("calls", "items", "used", "saved")
_PACKS = "context"
"""The place of packs among the names of tools."""
_PAUSE = 1.0
"""The seconds after which counts are written."""

log = logging.getLogger(__name__)
MAX_DAYS = 366


class _Place(NamedTuple):
    """A row of the table: everything of it is counted together."""

    app_id: UUID
    user_id: UUID
    day: date
    namespace: str
    tool: str


class ReadCounts:
    """Counts packs and the calls of tools, and reports the counts.

    counts.count_call(caller, "search_memory", "acme/shop", items=3, used=120, saved=310)
    report = await counts.tools(owner, days=30)
    """

    def __init__(self, database: Database, *, limits: LimitSettings, rates: RateLimiter) -> None:
        self._database = database
        self._limits = limits
        self._rates = rates
        self._waiting = dict[_Place, Counter[str]]()
        self._flushing: asyncio.Task[None] | None = None

    def count(self, caller: Caller, pack: ContextPack) -> None:
        """Add a pack to the counts of its app and day."""
        self._add(caller, _PACKS, pack.namespace, {
            "calls": 1, "items": len(pack.memories) + len(pack.passages), "candidates": pack.budget.candidates,
            "used": pack.budget.used, "saved": pack.budget.saved, "truncated": pack.budget.truncated,
            "dropped": pack.budget.dropped,
        })  # fmt: skip

    def count_call(self, caller: Caller, tool: str, namespace: str, *, items: int, used: int, saved: int) -> None:
        """Add a call of a tool to the counts of its app and day. `used`, `saved`: tokens."""
        self._add(caller, tool, namespace, {"calls": 1, "items": items, "used": used, "saved": saved})

    def _add(self, caller: Caller, tool: str, namespace: str, counts: dict[str, int]) -> None:
        """Add to the counts, which are written a moment later, so that no answer waits for them.

        An app that has no row yet is not counted.
        """
        if caller.known_app is None:
            return
        place = _Place(caller.app_id, caller.user_id, datetime.now(UTC).date(), namespace, tool)
        self._waiting.setdefault(place, Counter()).update(counts)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        while self._waiting:
            await asyncio.sleep(_PAUSE)
            try:
                await self.flush()
            except Unavailable as error:  # `database` logs this once
                log.debug("the counts of packs and tools wait: %s", error)

    async def flush(self) -> None:
        """Write the counts that wait.

        Raises:
            Unavailable: the database does not answer. They still wait.
        """
        while self._waiting:
            place, counts = self._waiting.popitem()
            try:
                await self._write(place, counts)
            except Unavailable:
                self._waiting.setdefault(place, Counter()).update(counts)
                raise

    @retry_on_conflict
    async def _write(self, place: _Place, counts: Counter[str]) -> None:
        row = place._asdict()
        added = pg_insert(ReadUsage).values(row | {name: counts[name] for name in _COUNTS})
        sums: dict[str, Any] = {name: getattr(ReadUsage, name) + added.excluded[name] for name in _COUNTS}
        added = added.on_conflict_do_update(constraint="pk_read_usage", set_=sums)
        try:
            async with self._database.transaction() as tx:
                await tx.execute(added)
        except exc.IntegrityError:  # the app was erased a moment ago, and its counts with it
            return

    async def report(self, caller: Caller, *, namespace: str | None = None, days: int = 30) -> ReadReport:
        """The counts of the user's apps in the last days. An app gets its own total, without days.

        Raises:
            Invalid: the namespace or the number of days is invalid.
        """
        which = await self._which(caller, namespace, days)
        async with self._database.transaction() as tx:
            rows = await _rows(tx, caller, [*which, ReadUsage.tool == _PACKS], days)
        listed = [DayOfReads(**_sums([row]), day=row.day, app_name=row.name, namespace=row.namespace) for row in rows]
        return ReadReport(TokensGiven(**_sums(rows)), listed if caller.owner else [])

    async def tools(self, caller: Caller, *, namespace: str | None = None, days: int = 30) -> ToolReport:
        """The calls of MCP tools by the user's apps in the last days. An app gets its own.

        Raises:
            Invalid: the namespace or the number of days is invalid.
        """
        which = await self._which(caller, namespace, days)
        async with self._database.transaction() as tx:
            rows = await _rows(tx, caller, [*which, ReadUsage.tool != _PACKS], days)
            names = {PERSON, *await spelling.readable_names(tx, caller, {row.namespace for row in rows})}
        # A call may name anything. The name is told only where there is something to read under it.
        if namespace is not None:
            rows = [row for row in rows if row.namespace in names]
        by_tool, by_day = dict[tuple[str, str], list[Any]](), dict[tuple[date, str, str, str], list[Any]]()
        for row in rows:
            by_tool.setdefault((row.name, row.tool), []).append(row)
            project = row.namespace if row.namespace in names else PERSON
            by_day.setdefault((row.day, row.name, row.tool, project), []).append(row)
        tools = [AppToolCalls(**_of_tools(some), app_name=app, tool=tool) for (app, tool), some in by_tool.items()]
        listed = [
            DayOfTools(**_of_tools(some), day=day, app_name=app, tool=tool, namespace=project)
            for (day, app, tool, project), some in by_day.items()
        ]
        return ToolReport(ToolCalls(**_of_tools(rows)), sorted(tools, key=lambda one: (one.app_name, one.tool)), listed)

    async def _which(self, caller: Caller, namespace: str | None, days: int) -> list[ColumnElement[bool]]:
        """Selects the rows that the caller may see, after those that wait are written."""
        caller.may_read()
        validation.between(days, "days", 1, MAX_DAYS)
        since = datetime.now(UTC).date() - timedelta(days=days - 1)
        which = [ReadUsage.user_id == caller.user_id, ReadUsage.day >= since]
        if not caller.owner:
            which.append(ReadUsage.app_id == caller.app_id)
        namespaces = () if namespace is None else (validation.name(namespace, "namespace", self._limits),)
        reached = caller.reached(namespaces)
        if reached is None:
            which.append(false())
        elif reached:
            which.append(ReadUsage.namespace.in_(reached))
        await self._rates.search(caller)
        await self.flush()
        return which


async def _rows(tx: Tx, caller: Caller, which: list[ColumnElement[bool]], days: int) -> list[Any]:
    """The rows with the names of the apps, the last day first, and an event of the audit log."""
    counts = [getattr(ReadUsage, name) for name in _COUNTS]
    places = ReadUsage.day, App.name, ReadUsage.namespace, ReadUsage.tool
    rows = select(*counts, *places).join(App, App.id == ReadUsage.app_id).where(*which)
    reads = (await tx.execute(rows.order_by(ReadUsage.day.desc(), *places[1:]))).all()
    await audit_log.record(tx, caller, AuditAction.PROJECT_USAGE, detail={"days": days})
    return [*reads]


def _sums(rows: Iterable[Any], names: Sequence[str] = _COUNTS) -> dict[str, int]:
    counted = [row._mapping for row in rows]
    return {name: sum(row[name] for row in counted) for name in names}


def _of_tools(rows: Iterable[Any]) -> dict[str, int]:
    return _sums(rows, _OF_TOOLS)
