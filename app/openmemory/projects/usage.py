"""Counts the tokens that context packs give, measured on their texts. No query is kept."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import exc, func, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Unavailable
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.projects.models import ReadUsage
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.schemas import DayOfReads, ReadReport, TokensGiven

_COUNTS = ("calls", "items", "candidates", "used", "saved", "truncated", "dropped")
_TOOL = "context"
_PAUSE = 1.0
"""The seconds after which counts are written."""

log = logging.getLogger(__name__)
MAX_DAYS = 366


class ReadCounts:
    """Counts packs, and reports the counts."""

    def __init__(self, database: Database, *, limits: LimitSettings, rates: RateLimiter) -> None:
        self._database = database
        self._limits = limits
        self._rates = rates
        self._waiting = dict[tuple[UUID, UUID, date, str], Counter[str]]()
        self._flushing: asyncio.Task[None] | None = None

    def count(self, caller: Caller, pack: ContextPack) -> None:
        """Add a pack to the counts of its app and day. One for an app that has no row yet is not counted.

        The counts are written a moment later, so that no pack waits for them.
        """
        if caller.known_app is None:
            return
        place = caller.app_id, caller.user_id, datetime.now(UTC).date(), pack.namespace
        self._waiting.setdefault(place, Counter()).update({
            "calls": 1, "items": len(pack.memories) + len(pack.passages), "candidates": pack.budget.candidates,
            "used": pack.budget.used, "saved": pack.budget.saved, "truncated": pack.budget.truncated,
            "dropped": pack.budget.dropped,
        })  # fmt: skip
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_later())

    async def _flush_later(self) -> None:
        while self._waiting:
            await asyncio.sleep(_PAUSE)
            try:
                await self.flush()
            except Unavailable as error:
                log.warning("The counts of packs could not be written yet: %s", error)

    async def flush(self) -> None:
        """Write the counts that wait.

        Raises:
            Unavailable: the database does not answer. They still wait.
        """
        while self._waiting:
            place, counts = self._waiting.popitem()
            try:
                await self._add(place, counts)
            except Unavailable:
                self._waiting.setdefault(place, Counter()).update(counts)
                raise

    @retry_on_conflict
    async def _add(self, place: tuple[UUID, UUID, date, str], counts: Counter[str]) -> None:
        app_id, user_id, day, namespace = place
        row = {"app_id": app_id, "user_id": user_id, "day": day, "namespace": namespace, "tool": _TOOL}
        added = pg_insert(ReadUsage).values(row | {name: counts[name] for name in _COUNTS})
        sums: dict[str, Any] = {name: getattr(ReadUsage, name) + added.excluded[name] for name in _COUNTS}
        added = added.on_conflict_do_update(constraint="pk_read_usage", set_=sums)
        try:
            async with self._database.transaction() as tx:
                await tx.execute(added)
        except exc.IntegrityError:  # the app was erased a moment ago, and its counts with it
            return

    async def report(self, caller: Caller, *, namespace: str | None = None, days: int = 30) -> ReadReport:
        """The counts of the user's apps in the last days. An app is told its own total, without days.

        Raises:
            Invalid: the namespace or the number of days is invalid.
        """
        caller.may_read()
        validation.between(days, "days", 1, MAX_DAYS)
        since = datetime.now(UTC).date() - timedelta(days=days - 1)
        which = [ReadUsage.user_id == caller.user_id, ReadUsage.day >= since]
        if not caller.owner:
            which.append(ReadUsage.app_id == caller.app_id)
        asked = () if namespace is None else (validation.name(namespace, "namespace", self._limits),)
        reached = caller.reached(asked)
        if reached is None:
            return ReadReport(TokensGiven(**dict.fromkeys(_COUNTS, 0)), [])
        if reached:
            which.append(ReadUsage.namespace.in_(reached))
        await self._rates.search(caller)
        await self.flush()
        sums = [func.sum(getattr(ReadUsage, name)) for name in _COUNTS]
        columns = ReadUsage.day, App.name, ReadUsage.namespace
        rows = select(*sums, *columns).join(App, App.id == ReadUsage.app_id).where(*which).group_by(*columns)
        async with self._database.transaction() as tx:
            found = (await tx.execute(rows.order_by(ReadUsage.day.desc(), App.name, ReadUsage.namespace))).all()
            await audit_log.record(tx, caller, AuditAction.PROJECT_USAGE, detail={"days": days})
        listed = [
            DayOfReads(**_counted(row[: len(_COUNTS)]), day=row.day, app_name=row.name, namespace=row.namespace)
            for row in found
        ]
        total = _counted([sum(getattr(one, name) for one in listed) for name in _COUNTS])
        return ReadReport(TokensGiven(**total), listed if caller.owner else [])


def _counted(values: Sequence[Any]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(_COUNTS, values, strict=True)}
