"""The outbox of the index: writes, claims and deletes its entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import func, select, text

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.index.models import ItemKind, OutboxEntry

ADD_ENTRIES = """
INSERT INTO index_outbox (kind, id, user_id) SELECT {kind}, {id}, {user} {source}
ON CONFLICT (kind, id) DO UPDATE SET revision = index_outbox.revision + 1, attempts = 0, written_at = now(),
    due_at = CASE WHEN index_outbox.last_error IS NULL THEN index_outbox.due_at ELSE now() END
"""
"""Writes an outbox entry, for use inside a larger statement. Ends the pause after a failure. An active lease, which has
no error yet, is left unchanged: two deliveries of one item must not overlap, or the older text could be written last.
Its holder sees that the revision changed and delivers again."""

_ADD = {
    kind: text(
        ADD_ENTRIES.format(
            kind=f"'{kind.value}'",
            id="ids.id",
            user="t.user_id",
            source="FROM unnest(CAST(:ids AS uuid[])) AS ids(id) "
            f"LEFT JOIN {kind.table} AS t ON t.id = ids.id ORDER BY 2",
        )
    )
    for kind in ItemKind
}

_CLAIM_ANY = {kind: text(load_sql(__name__, "claim", kind=kind.value, which="")) for kind in ItemKind}
_CLAIM_GONE = {
    kind: text(
        load_sql(
            __name__,
            "claim",
            kind=kind.value,
            which=f"AND NOT EXISTS (SELECT FROM {kind.table} AS t WHERE t.id = index_outbox.id AND t.state = 'active')",
        )
    )
    for kind in ItemKind
}

_ENTRIES = """
    unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:revisions AS integer[])) AS done(kind, id, revision)
    WHERE entry.kind = done.kind AND entry.id = done.id AND entry.revision
"""
# Two statements: the second sees what a writer committed while the first waited for it.
_SETTLE = text(f"DELETE FROM index_outbox AS entry USING {_ENTRIES} = done.revision RETURNING entry.kind, entry.id")  # noqa: S608
_RETRY_NOW = text(
    f"UPDATE index_outbox AS entry SET due_at = now(), attempts = 0 FROM {_ENTRIES} <> done.revision"  # noqa: S608
    " RETURNING entry.kind, entry.id"
)

_UNTRIED = text(
    """
    SELECT entry.id FROM unnest(CAST(:ids AS uuid[])) AS asked(id)
    JOIN index_outbox AS entry ON entry.kind = :kind AND entry.id = asked.id
    WHERE entry.attempts = 0 AND entry.due_at <= now()
    """
)

_POSTPONE = text(
    """
    UPDATE index_outbox AS entry
    SET due_at = now() + make_interval(
            secs => least(:ceiling, :base * power(2, least(entry.attempts, 16)) * (0.5 + random()))),
        last_error = :error
    FROM unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:holders AS uuid[])) AS failed(kind, id, holder)
    WHERE entry.kind = failed.kind AND entry.id = failed.id AND entry.holder = failed.holder
    """
)

_RENEW = text(
    """
    UPDATE index_outbox AS entry SET due_at = now() + make_interval(secs => :lease)
    FROM unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:holders AS uuid[])) AS held(kind, id, holder)
    WHERE entry.kind = held.kind AND entry.id = held.id AND entry.holder = held.holder AND entry.last_error IS NULL
    """
)
_END_LEASES = text("UPDATE index_outbox SET due_at = now() WHERE due_at > now() AND last_error IS NULL")
_END_PAUSES = text("UPDATE index_outbox SET due_at = now() WHERE due_at > now() AND last_error IS NOT NULL")
_RESET_LATE = text("UPDATE index_outbox SET due_at = now() WHERE due_at > now() + make_interval(secs => :furthest)")

FURTHEST = 3600.0
"""The maximum seconds until an entry is due: no lease or pause is as long. A later time was written while the server's
clock was wrong."""

MAX_PAUSE = 60.0
"""The longest pause after a failure in seconds. After a recovery, the remaining items are retried within that time."""

STUCK_AFTER = 8
"""The number of failed attempts after which an entry is shown as stuck. It is retried at the longest pause."""


@dataclass(frozen=True, slots=True)
class ClaimedEntry:
    """An outbox entry that only this process works on until its lease ends. `holder` identifies this claim."""

    kind: ItemKind
    id: UUID
    revision: int
    attempts: int
    holder: UUID


async def add_entries(tx: Tx, kind: ItemKind, ids: Iterable[UUID]) -> None:
    """Writes outbox entries for items with outdated vectors, in the transaction that changes the items."""
    await tx.execute(_ADD[kind], {"ids": sorted(ids)})


async def claim(
    tx: Tx,
    kind: ItemKind,
    *,
    limit: int,
    lease: float,
    gone: bool = False,
    index_lease: str | None = None,
    before: datetime | None = None,
) -> list[ClaimedEntry]:
    """Claims up to `limit` outbox entries of a kind that are due, for `lease` seconds, which must exceed any delivery.

    With `gone`, claims only entries of items to be removed from the index, which needs no model. With `index_lease`,
    claims nothing unless that holder has the index lease. With `before`, claims only what was due then. Entries of a
    kind that only a newer version of the service has are left to it.
    """
    holder = uuid4()
    values = {"limit": limit, "lease": lease, "holder": holder, "lease_holder": index_lease, "before": before}
    rows = await tx.execute((_CLAIM_GONE if gone else _CLAIM_ANY)[kind], values)
    return [ClaimedEntry(ItemKind(row.kind), row.id, row.revision, row.attempts, holder) for row in rows]


async def untried(tx: Tx, kind: ItemKind, ids: Sequence[UUID]) -> set[UUID]:
    """Those of the items with an outbox entry that no process has claimed yet, so that their delivery is still to
    come."""
    return set(await tx.scalars(_UNTRIED, {"kind": kind.value, "ids": list(ids)}))


async def renew(tx: Tx, entries: Sequence[ClaimedEntry], *, lease: float) -> None:
    """Keeps outbox entries for another `lease` seconds. An entry that another process has claimed meanwhile is left
    alone."""
    await tx.execute(_RENEW, _columns(entries) | {"holders": [entry.holder for entry in entries], "lease": lease})


async def complete(tx: Tx, entries: Sequence[ClaimedEntry]) -> None:
    """Deletes delivered outbox entries. An entry that was written again meanwhile becomes due at once.

    If an entry is missing, another process did it: the lease ended during this delivery, and either of the two may
    have written last. The entry is written again.
    """
    values = _columns(entries) | {"revisions": [entry.revision for entry in entries]}
    keys = {(row.kind, row.id) for row in await tx.execute(_SETTLE, values)}
    if len(keys) == len(entries):
        return
    keys |= {(row.kind, row.id) for row in await tx.execute(_RETRY_NOW, values)}
    for kind in ItemKind:
        if lost := [entry.id for entry in entries if entry.kind is kind and (entry.kind.value, entry.id) not in keys]:
            await add_entries(tx, kind, lost)


async def postpone(
    tx: Tx, failed: Sequence[ClaimedEntry], error: str, *, base: float = 0.5, ceiling: float = MAX_PAUSE
) -> None:
    """Schedules a retry after base · 2^attempts seconds, half to one and a half times that, at most `ceiling`.

    Entries that another process has claimed meanwhile are left alone.
    """
    holders = [entry.holder for entry in failed]
    values = {"holders": holders, "error": error[:500], "base": base, "ceiling": ceiling}
    await tx.execute(_POSTPONE, _columns(failed) | values)


async def end_leases(tx: Tx) -> None:
    """Makes the claims of a stopped process due at once. Only for a process that is certainly alone on the database."""
    await tx.execute(_END_LEASES)


async def end_pauses(tx: Tx) -> None:
    """Makes entries that wait after a failure due at once: the failed service answers again."""
    await tx.execute(_END_PAUSES)


async def reset_impossible_times(tx: Tx) -> None:
    """Makes entries with impossibly late times due at once: the server's clock was set back since."""
    await tx.execute(_RESET_LATE, {"furthest": FURTHEST})


async def waiting(tx: Tx) -> tuple[int, int]:
    """The number of outbox entries, and the number of stuck ones."""
    counts = select(func.count(), func.count().filter(OutboxEntry.attempts >= STUCK_AFTER))
    total, stuck = (await tx.execute(counts)).one()
    return total, stuck


async def now(tx: Tx) -> datetime:
    """The time of PostgreSQL, by which entries are due."""
    time: datetime = (await tx.execute(select(func.now()))).scalar_one()
    return time


async def next_due(tx: Tx) -> float | None:
    """The seconds until an entry is due (0 or less: now), or None if there is none."""
    due: Any = await tx.scalar(select(func.extract("epoch", func.min(OutboxEntry.due_at) - func.now())))
    return None if due is None else float(due)


def _columns(entries: Sequence[ClaimedEntry]) -> dict[str, Any]:
    return {"kinds": [entry.kind.value for entry in entries], "ids": [entry.id for entry in entries]}
