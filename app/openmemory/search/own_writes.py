"""Waits a moment for what the user has just written, so that the next search finds it by meaning.

A write is answered before its vector exists. The statement that every search runs first also tells whether entries of
the user are in the outbox, so a search with nothing to wait for costs nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from uuid import UUID

from sqlalchemy import Uuid

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database
from openmemory.index.sync.delivery import BATCH

FRESH = 3
"""The seconds after which a search no longer waits for a write."""

POLL = 0.02
"""The seconds between two looks into the outbox."""

PENDING = f"""
(select count(*) <= {BATCH} and coalesce(bool_or(
    o.written_at > now() - interval '{FRESH} s' and o.last_error is null
    and exists (select from memories m where m.id = o.id and m.user_id = :in_user and m.state = 'active')), false)
 from (select id, written_at, last_error from index_outbox order by due_at limit {BATCH + 1}) o)
"""  # noqa: S608 - only constants are put in
"""SQL: true if a memory that the user has just written is not in the index yet, and will be in a moment. That is not so
if its delivery failed, or if more entries wait than one round delivers."""

_PENDING = CompiledStatement(bound(f"select {PENDING}", {"in_user": Uuid()}), plain=True)


async def delivered(database: Database, user: UUID, seconds: float) -> None:
    """Waits until nothing of the user is `PENDING`, at most for these seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            pending = True
            while pending:
                await asyncio.sleep(POLL)
                async with database.statement() as tx:
                    [(pending,)] = await _PENDING.rows(tx, {"in_user": user})
