"""The queue of captures: rows in PostgreSQL, each leased to one worker of one process at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Uuid, bindparam, text

from openmemory.database.engine import Tx

LOCK = 0x6F6D6370
"""Key of the advisory lock for claiming captures. It keeps two processes from claiming captures of the same user."""

# A scalar subquery instead of NOT EXISTS: the planner turns NOT EXISTS into a join and would then sort all waiting
# captures to find the first. The CTE is materialized, because a subquery may be read again for each capture, and each
# reading would claim another one.
_CLAIM = text(
    """
    WITH due AS MATERIALIZED (
        SELECT d.id FROM captures AS d
        WHERE d.status IN ('pending', 'working') AND d.due_at <= now() AND (
            SELECT o.id FROM captures AS o
            WHERE o.status = 'working' AND o.user_id = d.user_id AND o.namespace = d.namespace
                AND o.due_at > now() AND o.id <> d.id LIMIT 1) IS NULL
        ORDER BY d.due_at, d.created_at LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE captures AS c
    SET status = 'working', holder = :holder, attempts = c.attempts + 1, updated_at = now(),
        due_at = now() + make_interval(secs => :lease)
    FROM due, users AS u, apps AS a
    WHERE c.id = due.id AND u.id = c.user_id AND a.id = c.app_id
    RETURNING c.id, c.user_id, u.user_id AS user_name, c.app_id, a.name AS app_name, c.namespace, c.input, c.options,
        c.principal, c.attempts, c.bad_answers, c.created_at
    """
).bindparams(bindparam("holder", type_=Uuid))

_RENEW = text(
    """
    UPDATE captures SET due_at = now() + make_interval(secs => :lease)
    WHERE id = :id AND holder = :holder AND status = 'working'
    """
).bindparams(bindparam("id", type_=Uuid), bindparam("holder", type_=Uuid))

_HELD = text(
    "SELECT id FROM captures WHERE id = :id AND holder = :holder AND status = 'working' FOR NO KEY UPDATE"
).bindparams(bindparam("id", type_=Uuid), bindparam("holder", type_=Uuid))

_LEASES = text("UPDATE captures SET due_at = now() WHERE status = 'working'")
_TO_COME = text("SELECT extract(epoch FROM min(due_at) - now()) FROM captures WHERE status IN ('pending', 'working')")
_PRUNE = text(
    """
    DELETE FROM captures WHERE id IN (
        SELECT id FROM captures WHERE finished_at < now() - make_interval(days => :days) LIMIT 5000)
    """
)


@dataclass(frozen=True, slots=True)
class ClaimedCapture:
    """A capture that this process holds until its lease ends."""

    id: UUID
    holder: UUID
    user_id: UUID
    user_name: str
    app_id: UUID
    app_name: str
    namespace: str
    input: dict[str, Any]
    options: dict[str, Any]
    principal: dict[str, Any]
    attempts: int
    bad_answers: int
    created_at: datetime


async def claim(tx: Tx, *, lease: float) -> ClaimedCapture | None:
    """Claims the capture that is due first. Captures of one user and namespace run one at a time, in arrival order."""
    await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
    holder = uuid4()
    row = (await tx.execute(_CLAIM, {"holder": holder, "lease": lease})).one_or_none()
    return None if row is None else ClaimedCapture(holder=holder, **row._mapping)


async def renew(tx: Tx, claimed: ClaimedCapture, *, lease: float) -> None:
    """Extends the lease of a capture."""
    await tx.execute(_RENEW, {"id": claimed.id, "holder": claimed.holder, "lease": lease})


async def held(tx: Tx, claimed: ClaimedCapture) -> bool:
    """Returns True if this process still holds the capture. It then keeps it until the transaction ends."""
    values = {"id": claimed.id, "holder": claimed.holder}
    return (await tx.execute(_HELD, values)).one_or_none() is not None


async def end_leases(tx: Tx) -> None:
    """Makes captures of an earlier process due again. Call this only if no other process uses the database."""
    await tx.execute(_LEASES)


async def seconds_until_due(tx: Tx) -> float | None:
    """Seconds until the next capture is due; None if nothing waits."""
    seconds = await tx.scalar(_TO_COME)
    return None if seconds is None else float(seconds)


async def prune(tx: Tx, *, days: int) -> None:
    """Removes captures that ended more than `days` days ago."""
    await tx.execute(_PRUNE, {"days": days})
