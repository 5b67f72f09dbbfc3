"""Merges a new text by its keys, or else by its meaning."""

from __future__ import annotations

from uuid import UUID

from openmemory.config.sections import DedupSettings
from openmemory.database.engine import Database
from openmemory.dedup.key_value_merge import KeyValueMerge
from openmemory.dedup.near_duplicates import Duplicates
from openmemory.dedup.scope import SharedScope
from openmemory.identity.caller import Caller
from openmemory.index.space import Spaces
from openmemory.memories.deduplication import Dedup
from openmemory.memories.intake import Intake
from openmemory.memories.schemas import CheckedMemory


class Merging:
    """Merges texts within a shared scope, whatever `dedup.near_duplicates` and `dedup.key_values` say.

    Usage: `await memories.add(caller, new, policy=merging)`.
    """

    def __init__(
        self, database: Database, spaces: Spaces, settings: DedupSettings, intake: Intake, scope: SharedScope
    ) -> None:
        settings = settings.model_copy(update={"near_duplicates": "merge", "key_values": "merge"})
        self._pairs = KeyValueMerge(settings, intake, scope)
        self._duplicates = Duplicates(database, spaces, settings, intake, scope)

    async def prepare(self, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> Dedup:
        """Looks for memories that it resembles. Returns the merge, to be run in the transaction that stores it."""
        policy = self._pairs if self._pairs.concerns(caller, new) else self._duplicates
        return await policy.prepare(caller, new, apps)
