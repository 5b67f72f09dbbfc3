"""The captures of all users from which no facts were extracted yet, for those who operate the service."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import text

from openmemory.database.engine import Tx

LATE = 300
"""Seconds after which a waiting capture is a problem."""

_ASK = text(
    f"""
    SELECT count(*) AS waiting, count(*) FILTER (WHERE created_at < now() - interval '{LATE} s') AS late,
        (SELECT count(*) FROM captures WHERE status = 'failed') AS failed,
        (array_agg(error ORDER BY updated_at DESC) FILTER (WHERE error IS NOT NULL))[1] AS error
    FROM captures WHERE status IN ('pending', 'working')
    """  # noqa: S608 - a constant of ours
)


class CaptureBacklog(NamedTuple):
    """The numbers of captures that wait, have waited long and have failed, and the last error of those that wait."""

    waiting: int
    late: int
    failed: int
    error: str | None

    @property
    def problems(self) -> list[str]:
        """The problems that an operator should look into, in words."""
        messages = []
        if self.late:
            why = f"; the last attempt failed: {self.error}" if self.error else ""
            messages.append(
                f"captures: {self.late:,} texts have waited for the language model for {LATE // 60} min{why}"
            )
        if self.failed:
            messages.append(
                f"captures: the language model could not read {self.failed:,} texts; they are kept and tried again, see"
                " GET /api/v1/captures?status=failed"
            )
        return messages


async def backlog(tx: Tx) -> CaptureBacklog:
    """Returns the backlog."""
    return CaptureBacklog(*(await tx.execute(_ASK)).one())
