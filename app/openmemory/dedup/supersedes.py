"""Stores a text in the place of memories that its author names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from uuid import UUID

from sqlalchemy import func, select

from openmemory.access.apps import refuse_if_paused
from openmemory.access.readable import readable_by
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories import changes, repository
from openmemory.memories.deduplication import Dedup
from openmemory.memories.lifecycle import superseding
from openmemory.memories.models import Memory
from openmemory.memories.schemas import CheckedMemory, Event, MemoryAdded

EXACT_DUPLICATE = "This memory says so already. It is in the place of what you named now."


class Supersedes:
    """Stores a text and supersedes memories, in one transaction."""

    def __init__(self, ids: Sequence[UUID]) -> None:
        self._ids = list(dict.fromkeys(ids))

    async def prepare(self, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> Dedup:
        """Returns what stores the text.

        Raises:
            Forbidden: the caller may not read.
        """
        caller.may_read()
        return partial(self._add, caller=caller, new=new, apps=apps)

    async def _add(self, tx: Tx, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> MemoryAdded:
        """Store the text, and supersede the memories by it or by its exact duplicate.

        Raises:
            NotFound: one of the memories does not exist, or the caller may not read it.
        """
        await refuse_if_paused(tx, caller, "archive memories")
        query = (
            select(Memory.id, Memory.content)
            .where(Memory.id == func.any(self._ids), readable_by(caller, Memory))
            .order_by(Memory.id)
            .with_for_update(of=Memory, key_share=True)
        )
        texts = {row.id: row.content for row in await tx.execute(query, caller.parameters)}
        if len(texts) < len(self._ids):
            raise repository.no_memory()
        [added] = await changes.add(tx, caller, [new], apps)
        others = [id_ for id_ in self._ids if id_ != added.id]
        for id_ in others:
            await superseding.supersede(tx, caller, id_, added.id)
        if not others:
            return added
        if added.event is not Event.ADD:
            return added.model_copy(update={"note": EXACT_DUPLICATE})
        return added.model_copy(update={"event": Event.SUPERSEDE, "previous_memory": texts[others[0]]})
