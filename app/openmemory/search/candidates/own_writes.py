"""Waits a moment for what the user has just written, so that the next search finds it by meaning.

A write is answered before its vector exists. The statement that every search runs first also reads whether entries of
the user are in the outbox, so a search with nothing to wait for costs nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import cache
from uuid import UUID

from sqlalchemy import Uuid

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database
from openmemory.index.models import ItemKind
from openmemory.index.sync.delivery import BATCH
from openmemory.index.sync.outbox import STUCK_AFTER

FRESH = 3
"""The seconds after which a search no longer waits for a write."""

LATE = 5
"""The seconds after which a search notes that a write is not in the index yet."""

POLL = 0.02
"""The seconds between two reads of the outbox."""

MAX_WAITING = 500
"""The number of the user's memories that are listed if the index does not contain them."""


@cache
def pending(kind: ItemKind) -> str:
    """SQL: one row on what the user has written. `waiting`: the rows that the index does not contain as they are now;
    null if there are too many to list them. `pending`: one of them was just written and will be there in a moment.
    That is not so if its delivery failed, or if more entries wait than one round delivers. `late`: one of them has
    waited for long, as after the end of a process that had claimed it. One that is stuck does not count: its text may
    be one that the model never accepts."""
    this, item = f"kind = '{kind.value}'", "m.id = i.id and m.state = 'active'"
    return f"""
    (select case when count(*) <= {MAX_WAITING} then coalesce(array_agg(o.id), '{{}}') end as waiting,
            coalesce(bool_or(o.written_at > now() - interval '{FRESH} s' and o.last_error is null), false)
              and (select count(*) from (select from index_outbox where {this} limit {BATCH + 1}) every) <= {BATCH}
              as pending,
            coalesce(bool_or(o.written_at < now() - interval '{LATE} s' and o.attempts < {STUCK_AFTER}), false) as late
     from (select i.* from index_outbox i join {kind.table} m on {item}
           where i.user_id = :in_user and i.{this} limit {MAX_WAITING + 1}) o)
    """  # noqa: S608 - only constants are put in


@cache
def _pending(kind: ItemKind) -> CompiledStatement:
    return CompiledStatement(bound(f"select pending from {pending(kind)} outbox", {"in_user": Uuid()}), plain=True)  # noqa: S608


async def wait_until_delivered(
    database: Database, user: UUID, seconds: float, kind: ItemKind = ItemKind.MEMORY
) -> None:
    """Waits until nothing of the user is pending, at most for these seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            waits = True
            while waits:
                await asyncio.sleep(POLL)
                async with database.statement() as tx:
                    [(waits,)] = await _pending(kind).rows(tx, {"in_user": user})
