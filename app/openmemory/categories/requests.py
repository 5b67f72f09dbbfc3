"""Requests to assign the categories of a user's memories again. They are stored together with the change that causes
them, and the job executes them.

A request costs one row for any number of memories, and is not lost.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text

from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.errors import Unavailable

log = logging.getLogger(__name__)

PAGE = 2_000
"""Memories that are queued in one transaction."""

_AT_ONCE = 200
"""Users per run."""

_REQUEST = text(
    """
    INSERT INTO reclassification_requests (user_id, requested_at) VALUES (:user, clock_timestamp())
    ON CONFLICT (user_id) DO UPDATE SET requested_at = excluded.requested_at
    """
)
_REQUESTS = text("SELECT user_id, requested_at FROM reclassification_requests ORDER BY requested_at LIMIT :limit")
# A request that arrived meanwhile stays, because its change may have come too late for this run.
_DELETE_REQUEST = text("DELETE FROM reclassification_requests WHERE user_id = :user AND requested_at = :requested_at")
CATEGORIZABLE = """
    EXISTS (SELECT FROM embeddings AS e WHERE e.kind = 'memory' AND e.id = m.id AND e.text_hash = m.hash)
    AND NOT EXISTS (SELECT FROM memory_categories AS f WHERE f.memory_id = m.id AND NOT f.automatic)
"""
QUEUE_PAGE = text(load_sql(__name__, "queue_page", categorizable=CATEGORIZABLE))


class _After(NamedTuple):
    made: datetime
    id: UUID


_FIRST = _After(datetime.min.replace(tzinfo=UTC), UUID(int=0))


async def request_reclassification(tx: Tx, user_id: UUID) -> None:
    """Request a new assignment of a user's memories, except those whose categories a client has set."""
    await tx.execute(_REQUEST, {"user": user_id})


async def queue_requested(database: Database) -> None:
    """Queue the memories of the users with a request. A failure for one user does not block the others.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with database.statement() as tx:
        requests = (await tx.execute(_REQUESTS, {"limit": _AT_ONCE})).all()
    for each in requests:
        try:
            await _queue(database, each)
        except Unavailable:
            raise
        except Exception:
            log.exception("memories of a user could not be queued for category assignment; it is tried again")


async def _queue(database: Database, request: Any) -> None:
    after: _After | None = _FIRST
    while after is not None:
        after = await _queue_page(database, request.user_id, after)
    async with database.statement() as tx:
        await tx.execute(_DELETE_REQUEST, {"user": request.user_id, "requested_at": request.requested_at})


@retry_on_conflict
async def _queue_page(database: Database, user_id: UUID, after: _After) -> _After | None:
    """Queue one page of the user's memories. Returns the last memory of the page, or None after the last page."""
    async with database.transaction() as tx:
        row = (await tx.execute(QUEUE_PAGE, {"user": user_id, "limit": PAGE, **after._asdict()})).one_or_none()
    return None if row is None else _After(row.created_at, row.id)
