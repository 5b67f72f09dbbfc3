"""Locks by name, which last until their transaction ends."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.database.engine import Tx

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


async def lock(tx: Tx, name: str) -> None:
    """Wait for the lock of this name and hold it until the transaction ends."""
    await tx.execute(_LOCK, {"name": name})
