"""The queue of captures: rows in PostgreSQL, each leased to one worker of one process at a time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import ARRAY, Uuid, bindparam, text

from openmemory.database.engine import Database, Tx
from openmemory.database.sql_files import load_sql

LOOK_AT, LOOK_AT_MOST = 20, 500
"""Captures that are looked at to find one to claim. Only if all wait behind others, more are looked at, up to the
second number at once; each of them only once until its turn comes."""

LOCK = 0x6F6D6370
"""Key of the advisory lock for claiming captures. It keeps two processes from claiming captures of the same user."""

# A capture whose lease runs keeps the others of its user and namespace waiting.
_BUSY = """
    (SELECT o.id FROM captures AS o
    WHERE o.status = 'working' AND o.user_id = c.user_id AND o.namespace = c.namespace AND o.due_at > now()
        AND {which} LIMIT 1)"""
# The captures that are due first, without those known to wait behind an earlier one, and without earlier ones that came
# in while a later one was being read. They stay locked, so that what is read of them next is still true when it is
# written.
_FIRST = text(
    f"""
    SELECT c.id FROM captures AS c
    WHERE c.status IN ('pending', 'working') AND NOT c.behind AND c.due_at <= now() AND c.id <> ALL (:seen)
        AND {_BUSY.format(which="(o.created_at, o.id) > (c.created_at, c.id)")} IS NULL
    ORDER BY c.due_at LIMIT :most FOR NO KEY UPDATE SKIP LOCKED
    """  # noqa: S608 - only constants are put in
).bindparams(bindparam("seen", type_=ARRAY(Uuid)))
_CLAIMED = load_sql(__name__, "claimed")
_CLAIM = text(load_sql(__name__, "claim", claimed=_CLAIMED)).bindparams(
    bindparam("holder", type_=Uuid), bindparam("ids", type_=ARRAY(Uuid))
)
_UNMARKED = text("SELECT id FROM captures WHERE id = ANY (:ids) AND NOT behind").bindparams(
    bindparam("ids", type_=ARRAY(Uuid))
)
_CLAIM_FAILED = text(
    load_sql(__name__, "claim_failed", busy=_BUSY.format(which="o.id <> c.id"), claimed=_CLAIMED)
).bindparams(bindparam("holder", type_=Uuid))

_RENEW = text(
    """
    UPDATE captures SET due_at = now() + make_interval(secs => :lease)
    WHERE id = :id AND holder = :holder AND status = 'working'
    """
).bindparams(bindparam("id", type_=Uuid), bindparam("holder", type_=Uuid))

_RELEASE = text(
    """
    UPDATE captures SET status = CASE WHEN bad_answers >= :most THEN 'failed' ELSE 'pending' END, holder = NULL,
        due_at = now() + make_interval(secs => :pause), updated_at = now()
    WHERE id = :id AND holder = :holder AND status = 'working'
    """
).bindparams(bindparam("id", type_=Uuid), bindparam("holder", type_=Uuid))

_LOCK_CAPTURE = text(
    "SELECT id FROM captures WHERE id = :id AND holder = :holder AND status = 'working' FOR NO KEY UPDATE"
).bindparams(bindparam("id", type_=Uuid), bindparam("holder", type_=Uuid))

_LEASES = text("UPDATE captures SET due_at = now() WHERE status = 'working'")
_TO_COME = text(
    """
    SELECT extract(epoch FROM least(
        (SELECT min(due_at) FROM captures WHERE status IN ('pending', 'working') AND NOT behind),
        (SELECT min(due_at) FROM captures WHERE status = 'failed')) - now())
    """
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


async def claim(database: Database, *, lease: float) -> ClaimedCapture | None:
    """Claims the capture that is due first, or else the failed one that is. Captures of one user and namespace run one
    at a time, in arrival order: a later one waits until the earlier ones are read or have failed."""
    holder = uuid4()
    values: dict[str, object] = {"holder": holder, "lease": lease}
    most = LOOK_AT
    seen: list[UUID] = []
    while True:
        async with database.transaction() as tx:
            await tx.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
            ids = list(await tx.scalars(_FIRST, {"most": most, "seen": seen}))
            result = await (tx.execute(_CLAIM, values | {"ids": ids}) if ids else tx.execute(_CLAIM_FAILED, values))
            row = result.one_or_none()
            if row is not None:
                return ClaimedCapture(holder=holder, **row._mapping)
            if not ids:
                return None
            seen += await tx.scalars(_UNMARKED, {"ids": ids})
        most = min(LOOK_AT_MOST, 4 * most)


async def renew(tx: Tx, claimed: ClaimedCapture, *, lease: float) -> None:
    """Extends the lease of a capture."""
    await tx.execute(_RENEW, {"id": claimed.id, "holder": claimed.holder, "lease": lease})


async def release(tx: Tx, claimed: ClaimedCapture, *, pause: float, most: int) -> None:
    """Makes a capture that this process still holds due again after a pause in seconds. With `most` unusable answers or
    more, it counts as failed again, so that later ones do not wait for it."""
    await tx.execute(_RELEASE, {"id": claimed.id, "holder": claimed.holder, "pause": pause, "most": most})


async def holds(tx: Tx, claimed: ClaimedCapture) -> bool:
    """Returns True if this process still holds the capture. It then keeps it until the transaction ends."""
    values = {"id": claimed.id, "holder": claimed.holder}
    return (await tx.execute(_LOCK_CAPTURE, values)).one_or_none() is not None


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
