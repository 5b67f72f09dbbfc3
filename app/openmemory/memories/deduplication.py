"""The interface of deduplication: it decides about new texts that resemble stored memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import UUID

from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import CheckedMemory, MemoryAdded

Dedup = Callable[[Tx], Awaitable[MemoryAdded | None]]
"""Handles a new text in the transaction that stores it. Returns None to let it be stored as it is."""


class DedupPolicy(Protocol):
    """Decides what becomes of a new text that resembles what is remembered."""

    async def prepare(self, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> Dedup:
        """Looks for memories that it resembles, before the transaction. Returns what to do in the transaction."""
        ...
