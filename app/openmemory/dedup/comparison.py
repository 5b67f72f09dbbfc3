"""Compares memories with those near to them, and stores the pairs of which the newer may replace the older.

Delivery compares what it has just written, unless more is waiting; a job compares the rest. The pairs are derived from
texts and vectors. They never show anything by themselves: whoever reads one reads both memories through `readable_by`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from sqlalchemy import text

from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.dedup.replacement import LONGEST, Verdict, judge
from openmemory.dedup.replacement_weights import digest
from openmemory.embeddings.chance import USUAL, ChanceCosine
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.index.entries import array_of
from openmemory.index.port import Filter, Hit, IndexUnavailable
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.reconcile import SyncRunning, alone

log = logging.getLogger(__name__)

NEAREST = 8
"""The number of memories that are compared with one."""

TOGETHER = 32
"""The number of memories that the job compares before it looks if something else waits."""

LOCK = 0x6F6D6E72
"""The key of the advisory lock for the one replica that runs the job."""


class MemoryComparison:
    """Finds the pairs of memories of which the newer may replace the older."""

    def __init__(self, database: Database, spaces: Spaces) -> None:
        self._database = database
        self._spaces = spaces
        self._judges_alike = False

    async def delivered(self, space: Space, ids: Sequence[UUID]) -> None:
        """Compares memories whose vectors were just written. What fails is left to the job."""
        try:
            await self._compare(space, ids)
        except (EmbedderUnavailable, IndexUnavailable) as error:
            log.debug("compared later: %s", error)

    async def run(self) -> int:
        """Compares what waits, until nothing is left or the index has other work. Returns the number of memories.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        count = 0
        try:
            async with alone(self._database, LOCK):
                await self._judge_again()
                while (space := await self._idle()) is not None and (some := await self._compare(space)):
                    count += some
        except SyncRunning:  # another replica runs it
            return 0
        except (EmbedderUnavailable, IndexUnavailable) as error:
            log.debug("compared later: %s", error)
        return count

    async def _judge_again(self) -> None:
        """Lets all memories wait, if those of this installation were compared by other weights. Looks once in a
        process, so that processes of two versions do not take turns."""
        if self._judges_alike:
            return
        async with self._database.transaction() as tx:
            if (await tx.execute(_JUDGED_BY, {"digest": digest()})).rowcount:
                await tx.execute(_ALL_WAIT)
        self._judges_alike = True

    async def _idle(self) -> Space | None:
        """The serving space, if it has no other work now."""
        space = self._spaces.serving
        if self._spaces.building is not None or not space.collection or not space.answers:
            return None
        async with self._database.statement() as tx:
            due = await outbox.next_due(tx)
        return None if due is not None and due <= 0 else space

    async def _compare(self, space: Space, ids: Sequence[UUID] | None = None) -> int:
        """Compares the memories that wait, or those of them that are listed. Returns their number."""
        values = {"model": space.model, "ids": None if ids is None else array_of(ids), "longest": LONGEST}
        values["most"] = TOGETHER if ids is None else len(ids)
        async with self._database.statement() as tx:
            rows = await _WAITING.rows(tx, values)
        if not rows:
            return 0
        looked = [await _near(space, row) if row.compared else (USUAL, []) for row in rows]
        near = {hit.id for _, some in looked for hit in some}
        async with self._database.statement() as tx:
            others = await _COMPARABLE.rows(tx, {"ids": array_of(near), "longest": LONGEST}) if near else []
        by_id = {row.id: row for row in others}
        pairs = [
            NearPair(row, by_id[hit.id], chance.nearness(hit.score))
            for row, (chance, some) in zip(rows, looked, strict=True)
            for hit in some
            if hit.id in by_id and _may_replace(row, by_id[hit.id])
        ]
        # In a thread: judging a batch takes milliseconds.
        await self._store(rows, await asyncio.to_thread(_judge_pairs, pairs))
        return len(rows)

    @retry_on_conflict
    async def _store(self, rows: Sequence[Any], pairs: Sequence[tuple[Any, Any, float, float]]) -> None:
        ids = [row.id for row in rows]
        async with self._database.transaction() as tx:
            await tx.execute(_FORGET, {"ids": ids})
            if pairs:
                await tx.execute(
                    _KEEP,
                    {
                        "newer": [newer.id for newer, *_ in pairs],
                        "older": [older.id for _, older, *_ in pairs],
                        "newer_hashes": [newer.hash for newer, *_ in pairs],
                        "older_hashes": [older.hash for _, older, *_ in pairs],
                        "nearnesses": [nearness for *_, nearness, _ in pairs],
                        "probabilities": [probability for *_, probability in pairs],
                        "times": [newer.said_at for newer, *_ in pairs],
                    },
                )
            await tx.execute(_DELETE_COMPARED, {"ids": ids, "versions": [row.version for row in rows]})


async def _near(space: Space, row: Any) -> tuple[ChanceCosine, list[Hit]]:
    """The nearest memories of the same namespace, and the cosines of this memory with unrelated texts."""
    where = Filter(row.user_id, namespaces=(row.namespace,), excluded=(row.id,))
    vector = np.frombuffer(row.vector, dtype="<f4")
    if len(vector) != await space.dimension():  # a text of several chunks says too many things
        return USUAL, []
    return await space.chance(vector), await space.search(vector, where, NEAREST)


def _may_replace(one: Any, other: Any) -> bool:
    """Returns True if two memories may be about the same: of one namespace, under one key, said by one role."""
    same_place = (one.user_id, one.namespace) == (other.user_id, other.namespace)
    return same_place and agree((one.key, other.key), (one.role, other.role))


def agree(*pairs: tuple[object, object]) -> bool:
    """Returns True if the two values of each pair are equal, or one of them is None."""
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


class NearPair(NamedTuple):
    """A memory and one that is near to it, with the nearness of their vectors (`embeddings.chance`)."""

    one: Any
    other: Any
    nearness: float


def _judge_pairs(pairs: Sequence[NearPair]) -> list[tuple[Any, Any, float, float]]:
    """The pairs of which the newer may replace the older: newer, older, nearness and probability. Each pair once."""
    judgements = {}
    for one, other, nearness in pairs:
        older, newer = sorted((one, other), key=lambda row: (row.said_at, row.id))
        judgement = judge(older.content, newer.content, nearness)
        if judgement.verdict is not Verdict.UNRELATED:
            judgements[newer.id, older.id] = newer, older, nearness, judgement.probability
    return [judgements[key] for key in sorted(judgements)]


_JUDGED_BY = text("UPDATE installation SET judged_by = :digest WHERE judged_by IS DISTINCT FROM :digest")
_ALL_WAIT = text(
    """
    INSERT INTO pending_comparisons (memory_id) SELECT m.id FROM memories AS m WHERE m.state = 'active' ORDER BY m.id
    ON CONFLICT (memory_id) DO UPDATE SET version = DEFAULT
    """
)

# A flagged text must not come before what it contradicts. `said_at`: when the memory got its present text.
_COLUMNS = """
    m.id, m.user_id, m.namespace, m.content, m.hash, m.key, m.metadata ->> 'role' AS role, coalesce((
        SELECT max(r.changed_at) FROM memory_revisions AS r
        WHERE r.memory_id = m.id AND r.old_text IS DISTINCT FROM r.new_text
    ), m.created_at) AS said_at
"""
_IS_COMPARABLE = """
    m.state = 'active' AND m.kind <> 'state' AND cardinality(m.labels) = 0
    AND length(m.content) <= CAST(:longest AS integer)
"""
_WAITING = CompiledStatement(
    text(
        f"""
        SELECT {_COLUMNS}, {_IS_COMPARABLE} AS compared, p.version, e.vector
        FROM pending_comparisons AS p
        JOIN memories AS m ON m.id = p.memory_id
        LEFT JOIN embeddings AS e ON e.kind = 'memory' AND e.id = m.id AND e.model = CAST(:model AS text)
            AND e.text_hash = m.hash
        WHERE (CAST(:ids AS uuid[]) IS NULL OR p.memory_id = ANY(CAST(:ids AS uuid[])))
            AND (e.id IS NOT NULL OR NOT ({_IS_COMPARABLE}))
        ORDER BY p.memory_id LIMIT CAST(:most AS integer)
        """  # noqa: S608 - only constants are put in
    ),
    binary=True,
)
_COMPARABLE = CompiledStatement(
    text(f"SELECT {_COLUMNS} FROM memories AS m WHERE m.id = ANY(CAST(:ids AS uuid[])) AND {_IS_COMPARABLE}")  # noqa: S608 - as above
)

# This removes every pair whose newer memory is compared now. A pair whose older memory is compared stays, unless the
# text of that memory has changed.
_FORGET = text(
    """
    DELETE FROM near_memories AS n USING memories AS m
    WHERE m.id = ANY(CAST(:ids AS uuid[]))
        AND (n.newer = m.id OR (n.older = m.id AND n.older_hash <> m.hash))
    """
)
_KEEP = text(load_sql(__name__, "keep"))
# A memory that changed meanwhile has a new version, and stays in the queue. A locked row is changing, so it stays too.
_DELETE_COMPARED = text(
    """
    DELETE FROM pending_comparisons WHERE memory_id IN (
        SELECT p.memory_id FROM pending_comparisons AS p
        JOIN unnest(CAST(:ids AS uuid[]), CAST(:versions AS bigint[])) AS done(id, version)
            ON p.memory_id = done.id AND p.version = done.version
        FOR UPDATE OF p SKIP LOCKED
    )
    """
)
