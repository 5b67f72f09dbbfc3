"""The backfill of vectors: those of texts that were cut into other chunks, and missing token vectors.

Archives bring both: another model or another version may have made their vectors, and they contain no tokens.

They are recomputed, a few at a time, while searches use the existing ones.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text

from openmemory.database.engine import Database
from openmemory.embeddings.chunks import stored_as
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.index import tokens
from openmemory.index.models import ItemKind
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import SyncRunning, alone
from openmemory.index.sync.writer import IndexedTable
from openmemory.index.tokens import VectorKey
from openmemory.resilience.circuit_breaker import BreakerState

log = logging.getLogger(__name__)

LOCK = 0x6F6D6375
"""The key of the advisory lock for the one replica that runs the backfill."""

PAGE = 500
"""The number of vectors in a page."""

TOGETHER = 16
"""The number of long texts that are embedded before others get their turn. New memories wait for these, a few
seconds."""


LOOK_AGAIN = 3_600.0
"""The seconds between two full scans for vectors without tokens, which a restored archive may add. A hundred thousand
take a second."""


class VectorBackfill:
    """Brings stored vectors up to date: first those with another `chunking` than the active model's, then those without
    token vectors.

    The vectors of a text that now has one chunk are valid and only get the new name. Those of longer texts are deleted,
    and outbox entries for their items written, in one transaction: delivery embeds them again. They stay in the index
    until then. Tokens are only added to stored vectors, if the model in use returns token vectors.
    """

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        outbox_delivery: OutboxDelivery,
        tables: Mapping[ItemKind, IndexedTable],
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._outbox_delivery = outbox_delivery
        self._tables = tables
        self._position = VectorKey()
        """The last stored vector that was checked for tokens. A new process starts over."""
        self._not_before = 0.0

    async def run(self) -> int:
        """Runs until nothing is left, or until the model or the index does not answer.

        Returns the number of outbox entries that it wrote. Waits while another collection is built.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        entries = 0
        try:
            async with alone(self._database, LOCK):
                while (some := await self._step()) is not None:
                    entries += some
                await self._complete()
        except SyncRunning:  # another replica runs it
            return 0
        except EmbedderUnavailable as error:
            log.debug("texts are embedded again later: %s", error)
        if entries:
            log.info("%d long texts got a vector for each part of them", entries)
        return entries

    async def _idle(self) -> Space | None:
        """The serving space, if it has no other work now. Work that somebody waits for goes first."""
        space = self._spaces.serving
        if self._spaces.building is not None or not space.collection:
            return None
        if self._outbox_delivery.breaker.state is not BreakerState.CLOSED:
            return None
        async with self._database.statement() as tx:
            due = await outbox.next_due(tx)
        return None if due is not None and due <= 0 else space

    async def _complete(self) -> None:
        """Adds tokens to stored vectors that lack them, page by page, from the end of the last run."""
        count = 0
        while time.monotonic() >= self._not_before and (space := await self._idle()) and space.embedder.tokenwise:
            async with self._database.statement() as tx:
                page = await tokens.page(tx, space.model, self._position)
            if page is None:
                self._position, self._not_before = VectorKey(), time.monotonic() + LOOK_AGAIN
                break
            some = page.lacking[:TOGETHER]
            for kind in ItemKind:
                count += await self._add_tokens(space, kind, [key.id for key in some if key.kind == kind.value])
            self._position = page.last if len(page.lacking) <= TOGETHER else some[-1]
        if count:
            log.info("%d texts got vectors of their tokens", count)

    async def _add_tokens(self, space: Space, kind: ItemKind, ids: Sequence[UUID]) -> int:
        """Embeds the texts of items again and stores the tokens. The stored vectors stay unchanged."""
        if not ids:
            return 0
        async with self._database.statement() as tx:
            texts = await self._tables[kind].texts(tx, ids)
        embeddings = await space.embedder.documents([text.text for text in texts.values()])
        hashes = [(id_, text.hash) for id_, text in texts.items()]
        codes = [one.tokens for one in embeddings if one.tokens is not None]
        async with self._database.transaction() as tx:
            return await tokens.keep(tx, kind, space.model, hashes, codes)

    async def _step(self) -> int | None:
        """Processes one page: writes outbox entries for its long texts and delivers them. Returns their number, or None
        if there is nothing to do, or not now."""
        if (space := await self._idle()) is None:
            return None
        chunking = stored_as(space.embedder.chunking, await space.dimension())
        async with self._database.statement() as tx:
            rows = (
                await tx.execute(_OTHER_CHUNKING, {"model": space.model, "chunking": chunking, "limit": PAGE})
            ).all()
        if not rows:
            return None
        entries = 0
        for kind in ItemKind:
            by_id = {row.id: row for row in rows if row.kind == kind.value}
            entries += await self._replace(space, kind, by_id, chunking)
        result = await self._outbox_delivery.drain()
        return None if result.failed else entries

    async def _replace(self, space: Space, kind: ItemKind, by_id: Mapping[UUID, Any], chunking: str) -> int:
        dimension = await space.dimension()
        async with self._database.statement() as tx:
            texts = await self._tables[kind].texts(tx, list(by_id))
        ids = [id_ for id_, text in texts.items() if text.hash == by_id[id_].text_hash]
        # The vectors of a text that no longer exists are useless.
        useless = by_id.keys() - set(ids)
        short: list[UUID] = []
        long: list[UUID] = []
        for start in range(0, len(ids), TOGETHER):
            some = ids[start : start + TOGETHER]
            chunks = await space.embedder.chunks([texts[id_].text for id_ in some])
            for id_, number in zip(some, chunks, strict=True):
                (short if number == 1 and by_id[id_].length == 4 * dimension else long).append(id_)
            if len(long) >= TOGETHER:
                break
        values = {"kind": kind.value, "model": space.model, "chunking": chunking}
        async with self._database.transaction() as tx:
            await tx.execute(_RENAME, values | _rows(short, by_id))
            forgotten = set((await tx.execute(_FORGET, values | _rows([*useless, *long], by_id))).scalars())
            again = [id_ for id_ in long if id_ in forgotten]
            await outbox.add_entries(tx, kind, again)
        return len(again)


def _rows(ids: list[UUID], by_id: Mapping[UUID, Any]) -> dict[str, object]:
    return {"ids": ids, "hashes": [by_id[id_].text_hash for id_ in ids]}


_OTHER_CHUNKING = text(
    """
    SELECT kind, id, text_hash, length(vector) AS length FROM embeddings
    WHERE model = :model AND (chunking < :chunking OR chunking > :chunking) LIMIT :limit
    """
)
# Only rows that are unchanged: a delivery may have written them meanwhile.
_UNCHANGED = """
    (e.id, e.text_hash) IN (SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:hashes AS text[])))
    AND e.kind = :kind AND e.model = :model AND e.chunking <> :chunking
"""
_RENAME = text(f"UPDATE embeddings AS e SET chunking = :chunking WHERE {_UNCHANGED}")  # noqa: S608 - only constants are put in
_FORGET = text(f"DELETE FROM embeddings AS e WHERE {_UNCHANGED} RETURNING e.id")  # noqa: S608 - as above
