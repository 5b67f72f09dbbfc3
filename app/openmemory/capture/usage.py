"""Language model usage by app and day. The totals outlive the captures and are written in the same transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select, text

from openmemory.access.models import App
from openmemory.capture.extraction import Cost
from openmemory.capture.models import Capture, CaptureUsage
from openmemory.capture.schemas import Spent, SpentByApp, Usage
from openmemory.capture.status import WAITS, Status
from openmemory.capture.visibility import own
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller

MAX_DAYS = 366
"""Maximum number of days in one response."""

USUAL = 30
"""Number of days in a response if the request names no first day."""

ENDS = (Status.DONE, Status.FAILED, Status.UNDONE)
_SUMS = tuple(Spent.model_fields)

_NOTE = text(load_sql(__name__, "record")).bindparams(bindparam("app_id", type_=Uuid))


async def record(
    tx: Tx, app_id: UUID, namespace: str, cost: Cost | None = None, *, became: Status | None = None
) -> None:
    """Adds the cost of an attempt, and a capture that ended, to the totals of the day.

    Call this last in the transaction, because other captures of the app wait for the row.
    """
    cost = cost or Cost()
    if not cost.calls and became is None:
        return
    values = {
        "app_id": app_id, "namespace": namespace, "calls": cost.calls, "prompt_tokens": cost.prompt_tokens,
        "completion_tokens": cost.completion_tokens, "seconds": cost.seconds,
        **{str(end): int(became is end) for end in ENDS},
    }  # fmt: skip
    await tx.execute(_NOTE, values)


def days(first: date | None, last: date | None) -> tuple[date, date]:
    """The first and the last day of a range in UTC, both included, with defaults filled in.

    Raises:
        Invalid: the days are in the wrong order, or there are too many.
    """
    last = last or datetime.now(UTC).date()
    if first is None:
        first = date.fromordinal(max(1, last.toordinal() - USUAL + 1))
    if first > last:
        raise Invalid("from", f"must not be later than to ({last.isoformat()})")
    if last - first >= timedelta(MAX_DAYS):
        raise Invalid("from", f"must be within {MAX_DAYS} days of to ({last.isoformat()}), which counts as one of them")
    return first, last


async def between(tx: Tx, caller: Caller, first: date, last: date) -> Usage:
    """Usage by the captures that the caller may see on these days, newest first, and the number of waiting captures."""
    sums = [func.sum(getattr(CaptureUsage, name)).label(name) for name in _SUMS]
    query = (
        select(CaptureUsage.day, CaptureUsage.app_id, App.name.label("app_name"), *sums)
        .join(App, App.id == CaptureUsage.app_id)
        .where(own(caller, CaptureUsage), CaptureUsage.day.between(first, last))
        .group_by(CaptureUsage.day, CaptureUsage.app_id, App.name)
        .order_by(CaptureUsage.day.desc(), App.name, CaptureUsage.app_id)
    )
    rows = [SpentByApp.model_validate(row) for row in await tx.execute(query, caller.parameters)]
    waiting = select(func.count()).select_from(Capture).where(own(caller, Capture), Capture.status.in_(WAITS))
    return Usage(
        first=first, last=last, days=rows, total=_sum_rows(rows),
        waiting=await tx.scalar(waiting, caller.parameters) or 0,
    )  # fmt: skip


def _sum_rows(rows: Iterable[Spent]) -> Spent:
    rows = list(rows)
    return Spent(**{name: sum(getattr(row, name) for row in rows) for name in _SUMS})
