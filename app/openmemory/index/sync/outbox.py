"""Marks: raising, claiming and lowering the dirty flags of the index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select, text

from openmemory.database.engine import Tx
from openmemory.index.models import IndexMark, Kind

RAISE = """
INSERT INTO index_marks (kind, id) SELECT {kind}, {id} {source}
ON CONFLICT (kind, id) DO UPDATE SET revision = index_marks.revision + 1, attempts = 0, marked_at = now(),
    due_at = CASE WHEN index_marks.last_error IS NULL THEN index_marks.due_at ELSE now() END
"""
"""Raising a flag, for use inside a larger statement. The pause after a failure ends; a lease that somebody holds, which
has no error yet, is left alone: two deliveries of one item must not overlap, or the older text could be written last.
Its holder finds the revision changed and comes back."""

_MARK_DIRTY = text(
    RAISE.format(kind="CAST(:kind AS text)", id="ids.id", source="FROM unnest(CAST(:ids AS uuid[])) AS ids(id)")
)

_CLAIM = """
    UPDATE index_marks AS mark
    SET due_at = now() + make_interval(secs => :lease), attempts = mark.attempts + 1, last_error = NULL,
        holder = :holder
    FROM (
        SELECT kind, id FROM index_marks
        WHERE due_at <= now() {which}
            AND (CAST(:lease_holder AS text) IS NULL
                OR EXISTS (SELECT FROM index_lease WHERE holder = :lease_holder))
        ORDER BY due_at, marked_at LIMIT :limit FOR UPDATE SKIP LOCKED
    ) AS due
    WHERE mark.kind = due.kind AND mark.id = due.id
    RETURNING mark.kind, mark.id, mark.revision, mark.attempts
"""
_CLAIM_ANY = text(_CLAIM.format(which=""))
_CLAIM_GONE = text(
    _CLAIM.format(
        which="""AND kind = 'memory'
        AND NOT EXISTS (SELECT FROM memories AS m WHERE m.id = index_marks.id AND m.state = 'active')"""
    )
)

_DONE = """
    unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:revisions AS integer[])) AS done(kind, id, revision)
    WHERE mark.kind = done.kind AND mark.id = done.id AND mark.revision
"""
# Two statements: the second sees what a writer committed while the first waited for it.
_LOWER = text(f"DELETE FROM index_marks AS mark USING {_DONE} = done.revision RETURNING mark.kind, mark.id")  # noqa: S608
_COME_BACK = text(
    f"UPDATE index_marks AS mark SET due_at = now(), attempts = 0 FROM {_DONE} <> done.revision"  # noqa: S608
    " RETURNING mark.kind, mark.id"
)

_POSTPONE = text(
    """
    UPDATE index_marks AS mark
    SET due_at = now() + make_interval(
            secs => least(:ceiling, :base * power(2, least(mark.attempts, 16)) * (0.5 + random()))),
        last_error = :error
    FROM unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:holders AS uuid[])) AS failed(kind, id, holder)
    WHERE mark.kind = failed.kind AND mark.id = failed.id AND mark.holder = failed.holder
    """
)

_RENEW = text(
    """
    UPDATE index_marks AS mark SET due_at = now() + make_interval(secs => :lease)
    FROM unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:holders AS uuid[])) AS held(kind, id, holder)
    WHERE mark.kind = held.kind AND mark.id = held.id AND mark.holder = held.holder AND mark.last_error IS NULL
    """
)
_END_LEASES = text("UPDATE index_marks SET due_at = now() WHERE due_at > now() AND last_error IS NULL")
_END_PAUSES = text("UPDATE index_marks SET due_at = now() WHERE due_at > now() AND last_error IS NOT NULL")
_MEND_TIMES = text("UPDATE index_marks SET due_at = now() WHERE due_at > now() + make_interval(secs => :furthest)")

FURTHEST = 3600.0
"""Seconds: no lease and no pause is as long. What is due later was written while the server's clock was wrong."""

LONGEST_PAUSE = 60.0
"""Seconds of the longest pause after a failure: what a recovered index still lacks is tried within that time."""

STUCK_AFTER = 8
"""Failed attempts after which a mark is shown as stuck. It is tried on, at the longest pause."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A mark that this process alone works on until its lease ends. `holder` tells this claim from any other."""

    kind: Kind
    id: UUID
    revision: int
    attempts: int
    holder: UUID


async def mark_dirty(tx: Tx, kind: Kind, ids: Iterable[UUID]) -> None:
    """Note, in the transaction that changes the items, that their vectors are out of date."""
    await tx.execute(_MARK_DIRTY, {"kind": kind.value, "ids": sorted(ids)})


async def claim(
    tx: Tx, *, limit: int, lease: float, gone: bool = False, index_lease: str | None = None
) -> list[Claimed]:
    """Take up to `limit` marks that are due, for `lease` seconds: longer than any delivery may take.

    With `gone` only those of items that are to leave the index, which needs no model. With `index_lease` none, unless
    that holder has the lease of the index.
    """
    holder = uuid4()
    values = {"limit": limit, "lease": lease, "holder": holder, "lease_holder": index_lease}
    rows = await tx.execute(_CLAIM_GONE if gone else _CLAIM_ANY, values)
    return [Claimed(Kind(row.kind), row.id, row.revision, row.attempts, holder) for row in rows]


async def renew(tx: Tx, held: Sequence[Claimed], *, lease: float) -> None:
    """Keep marks for another `lease` seconds. One that somebody else has claimed meanwhile is theirs."""
    await tx.execute(_RENEW, _columns(held) | {"holders": [mark.holder for mark in held], "lease": lease})


async def settle(tx: Tx, done: Sequence[Claimed]) -> None:
    """Lower the flags that were delivered; one raised again meanwhile is due at once.

    A mark that is gone was settled by another process: the lease ended while this one still worked, and either of the
    two may have written last. It is raised again.
    """
    values = _columns(done) | {"revisions": [mark.revision for mark in done]}
    known = {(row.kind, row.id) for row in await tx.execute(_LOWER, values)}
    if len(known) == len(done):
        return
    known |= {(row.kind, row.id) for row in await tx.execute(_COME_BACK, values)}
    for kind in Kind:
        if lost := [mark.id for mark in done if mark.kind is kind and (mark.kind.value, mark.id) not in known]:
            await mark_dirty(tx, kind, lost)


async def postpone(
    tx: Tx, failed: Sequence[Claimed], error: str, *, base: float = 0.5, ceiling: float = LONGEST_PAUSE
) -> None:
    """Try again later: after base · 2^attempts seconds, half to one and a half times that, at most `ceiling`.

    What somebody else has claimed meanwhile is theirs.
    """
    holders = [mark.holder for mark in failed]
    values = {"holders": holders, "error": error[:500], "base": base, "ceiling": ceiling}
    await tx.execute(_POSTPONE, _columns(failed) | values)


async def end_leases(tx: Tx) -> None:
    """Make due at once what a stopped process had claimed. Only for one that knows that it is alone on the database."""
    await tx.execute(_END_LEASES)


async def end_pauses(tx: Tx) -> None:
    """Make due at once what waits after a failure: whatever failed answers again."""
    await tx.execute(_END_PAUSES)


async def mend_times(tx: Tx) -> None:
    """Make due at once what could not be due so late: the server's clock was set back since."""
    await tx.execute(_MEND_TIMES, {"furthest": FURTHEST})


async def waiting(tx: Tx) -> tuple[int, int]:
    """How many marks there are, and how many of them are stuck."""
    counts = select(func.count(), func.count().filter(IndexMark.attempts >= STUCK_AFTER))
    total, stuck = (await tx.execute(counts)).one()
    return total, stuck


async def next_due(tx: Tx) -> float | None:
    """Seconds until a mark is due (0 or less: now); None when there is none."""
    due: Any = await tx.scalar(select(func.extract("epoch", func.min(IndexMark.due_at) - func.now())))
    return None if due is None else float(due)


def _columns(marks: Sequence[Claimed]) -> dict[str, Any]:
    return {"kinds": [mark.kind.value for mark in marks], "ids": [mark.id for mark in marks]}
