"""Counts the tokens that context packs give, measured on their texts. No query is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import exc, func, select
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.projects.models import ReadUsage
from openmemory.projects.packing import ContextPack
from openmemory.projects.schemas import DayOfReads, ReadReport, TokensGiven

_COUNTS = ("calls", "items", "candidates", "used", "saved", "dropped")
_TOOL = "context"
MAX_DAYS = 366


class ReadCounts:
    """Counts packs, and reports the counts."""

    def __init__(self, database: Database, *, limits: LimitSettings, rates: RateLimiter) -> None:
        self._database = database
        self._limits = limits
        self._rates = rates

    async def count(self, caller: Caller, pack: ContextPack) -> None:
        """Add a pack to the counts of its app and day. One for an app that has no row yet is not counted."""
        if caller.known_app is None:
            return
        counts = {
            "calls": 1, "items": len(pack.memories) + len(pack.passages), "candidates": pack.budget.candidates,
            "used": pack.budget.used, "saved": pack.budget.saved, "dropped": pack.budget.dropped,
        }  # fmt: skip
        place = {
            "app_id": caller.app_id, "user_id": caller.user_id, "day": datetime.now(UTC).date(),
            "namespace": pack.namespace, "tool": _TOOL,
        }  # fmt: skip
        added = pg_insert(ReadUsage).values(place | counts)
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
            return ReadReport(TokensGiven(0, 0, 0, 0, 0, 0), [])
        if reached:
            which.append(ReadUsage.namespace.in_(reached))
        await self._rates.search(caller)
        sums = [func.sum(getattr(ReadUsage, name)) for name in _COUNTS]
        columns = ReadUsage.day, App.name, ReadUsage.namespace
        rows = select(*sums, *columns).join(App, App.id == ReadUsage.app_id).where(*which).group_by(*columns)
        async with self._database.transaction() as tx:
            found = (await tx.execute(rows.order_by(ReadUsage.day.desc(), App.name, ReadUsage.namespace))).all()
            await audit_log.record(tx, caller, AuditAction.PROJECT_USAGE, detail={"days": days})
        listed = [
            DayOfReads(**_counted(row[:6]), day=row.day, app_name=row.name, namespace=row.namespace) for row in found
        ]
        total = _counted([sum(getattr(one, name) for one in listed) for name in _COUNTS])
        return ReadReport(TokensGiven(**total), listed if caller.owner else [])


def _counted(values: Sequence[Any]) -> dict[str, int]:
    return {name: int(value) for name, value in zip(_COUNTS, values, strict=True)}
