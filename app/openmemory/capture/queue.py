"""The queue of captures: rows in PostgreSQL, each leased to one worker of one process at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Uuid, bindparam, text

from openmemory.database.engine import Tx

FAILED_AT_ONCE = 100
"""Maximum number of failed captures among which one is chosen to be read again."""

FIRST_ONES = 20
"""Maximum number of captures that are tried to be claimed. Another transaction may hold the first one for a moment."""

LOCK = 0x6F6D6370
"""Key of the advisory lock for claiming captures. It keeps two processes from claiming captures of the same user."""

# The oldest waiting capture of each user and namespace, found by one index lookup for each of them. Only it can be
# claimed, so its pause is that of all captures behind it.
_HEADS = """
    WITH RECURSIVE heads AS (
        (SELECT id, user_id, namespace, due_at, created_at FROM captures WHERE status IN ('pending', 'working')
        ORDER BY user_id, namespace, created_at, id LIMIT 1)
        UNION ALL
        SELECT n.* FROM heads AS h CROSS JOIN LATERAL (
            SELECT c.id, c.user_id, c.namespace, c.due_at, c.created_at FROM captures AS c
            WHERE c.status IN ('pending', 'working') AND (c.user_id, c.namespace) > (h.user_id, h.namespace)
            ORDER BY c.user_id, c.namespace, c.created_at, c.id LIMIT 1) AS n
    )
"""
# Failed captures come after those that nobody has read yet. An array and a scalar subquery, because the planner would
# join all waiting captures otherwise. The CTE is materialized, because a subquery may be read again for each capture,
# and each reading would claim another one.
_CLAIM = text(
    f"""{_HEADS}, candidates AS (
        (SELECT id, user_id, namespace, due_at, created_at, false AS failed FROM heads WHERE due_at <= now())
        UNION ALL
        (SELECT id, user_id, namespace, due_at, created_at, true FROM captures
        WHERE status = 'failed' AND due_at <= now() ORDER BY due_at LIMIT {FAILED_AT_ONCE})
    ), due AS MATERIALIZED (
        SELECT d.id, d.updated_at FROM captures AS d
        WHERE d.status IN ('pending', 'working', 'failed') AND d.due_at <= now() AND d.id = ANY (ARRAY(
            SELECT e.id FROM candidates AS e WHERE (
                SELECT o.id FROM captures AS o
                WHERE o.status = 'working' AND o.user_id = e.user_id AND o.namespace = e.namespace
                    AND o.due_at > now() AND o.id <> e.id LIMIT 1) IS NULL
            ORDER BY e.failed, e.due_at, e.created_at LIMIT {FIRST_ONES}))
        ORDER BY d.status = 'failed', d.due_at, d.created_at LIMIT 1 FOR UPDATE SKIP LOCKED
    )
    UPDATE captures AS c
    SET status = 'working', holder = :holder, attempts = c.attempts + 1, updated_at = now(),
        due_at = now() + make_interval(secs => :lease)
    FROM due, users AS u, apps AS a
    WHERE c.id = due.id AND u.id = c.user_id AND a.id = c.app_id
    RETURNING c.id, c.user_id, u.user_id AS user_name,
        u.metadata ->> 'timezone' AS timezone, c.app_id, a.name AS app_name, c.namespace, c.input, c.options,
        c.principal, c.operations, c.attempts, c.bad_answers, c.created_at, due.updated_at AS tried_at
    """  # noqa: S608 - only constants are put in
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
_TO_COME = text(
    f"""{_HEADS}
    SELECT extract(epoch FROM least(min(due_at), (SELECT min(due_at) FROM captures WHERE status = 'failed')) - now())
    FROM heads
    """  # noqa: S608 - as above
)
_HURRY = text(
    """
    UPDATE captures SET due_at = now() WHERE status = 'pending' AND due_at > now() AND id = (
        SELECT id FROM captures WHERE status IN ('pending', 'working') AND user_id = :user AND namespace = :namespace
        ORDER BY created_at, id LIMIT 1)
    """
).bindparams(bindparam("user", type_=Uuid))
_FAILED_OF_OTHERS = text(
    "UPDATE captures SET due_at = now() WHERE status = 'failed' AND due_at > now() AND model <> :model"
)
_ANSWERED = text("SELECT EXISTS (SELECT FROM captures WHERE status = 'done' AND finished_at > :since)")
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
    timezone: str | None
    """The one that the user saved."""
    app_id: UUID
    app_name: str
    namespace: str
    input: dict[str, Any]
    options: dict[str, Any]
    principal: dict[str, Any]
    operations: list[dict[str, Any]]
    attempts: int
    bad_answers: int
    created_at: datetime
    tried_at: datetime
    """The end of the last attempt; before the first one, the time when the capture was stored."""


async def claim(tx: Tx, *, lease: float) -> ClaimedCapture | None:
    """Claims the capture that is due first. Captures of one user and namespace run one at a time, in arrival order: a
    later one waits until the earlier ones are read or have failed."""
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


async def hurry(tx: Tx, user_id: UUID, namespace: str) -> None:
    """Makes the oldest waiting capture of a user and namespace due now, because a later one has arrived."""
    await tx.execute(_HURRY, {"user": user_id, "namespace": namespace})


async def retry_failed(tx: Tx, *, model: str | None) -> None:
    """Makes the captures due that failed with another model than this one, which works."""
    await tx.execute(_FAILED_OF_OTHERS, {"model": model})


async def answered_others(tx: Tx, claimed: ClaimedCapture) -> bool:
    """Returns True if another capture was read since the last attempt at this one."""
    return bool(await tx.scalar(_ANSWERED, {"since": claimed.tried_at}))


async def prune(tx: Tx, *, days: int) -> None:
    """Removes captures that ended more than `days` days ago."""
    await tx.execute(_PRUNE, {"days": days})
