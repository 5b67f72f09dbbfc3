"""Lists the pairs of memories that say nearly the same, and lets the user merge or keep them.

The judgement is that of `dedup.near_duplicates`, which decides about added texts. The vectors are those that are
stored, so that listing embeds nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid4

import numpy as np
from sqlalchemy import (
    ARRAY,
    DateTime,
    Integer,
    Text,
    Uuid,
    and_,
    bindparam,
    delete,
    func,
    literal_column,
    select,
    tuple_,
)
from sqlalchemy.dialects.postgresql import insert

from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import DedupSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.dedup.near_duplicates import (
    NEAREST,
    NO_EMBEDDER,
    NO_INDEX,
    NO_THRESHOLD,
    is_comparable,
    least_similarity,
)
from openmemory.dedup.paraphrases import Relation
from openmemory.dedup.rewriting import is_rewritable
from openmemory.dedup.sameness import item, sameness
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.models import Embedding
from openmemory.index.port import Filter, Hit, IndexUnavailable, Vector
from openmemory.index.space import Space, Spaces
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories.lifecycle import superseding, undoing
from openmemory.memories.listing import pages
from openmemory.memories.listing.pages import ListAccess
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryQuery, MemoryRecord
from openmemory.search.timeline.schemas import Place
from openmemory.tidying.models import KeptPair
from openmemory.tidying.schemas import SeenVersion
from openmemory.tidying.seen_versions import locked

PAIRS = 10
"""The number of pairs after which a page is full."""

STRETCH = 50
"""The number of memories that are looked at before the pairs are counted."""

STRETCHES = 10
"""The maximum number of stretches of one page."""

SEARCHES = 2
"""The number of searches that run at once. Each holds the event loop for milliseconds if the index is built in."""


NEWEST = Place(datetime.max.replace(tzinfo=UTC), UUID(int=2**128 - 1))


class DuplicatePair(NamedTuple):
    """Two memories that say nearly the same. `says_more`: the newer one says more than the older one."""

    newer: MemoryRecord
    older: MemoryRecord
    similarity: float
    says_more: bool


@dataclass(frozen=True, slots=True)
class DuplicatePage:
    """The pairs whose newer memory is in one part of the user's memories, newest first.

    `looked_at`: the number of memories in this part. `next`: where the next page begins; None: this is the last one.
    `note`: why nothing could be compared.
    """

    pairs: Sequence[DuplicatePair]
    looked_at: int = 0
    next: Place | None = None
    note: str | None = None


class _Near(NamedTuple):
    """The rows of two memories that say nearly the same."""

    newer: Any
    older: Any
    similarity: float
    relation: Relation


class DuplicatePairs:
    """Lists pairs of near duplicates, merges and keeps them. Only the user may, never an app."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        delivery: OutboxDelivery,
        *,
        settings: DedupSettings,
        written: Counter[str],
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._delivery = delivery
        self._settings = settings
        self._written = written

    async def page(self, caller: Caller, after: Place | str = NEWEST) -> DuplicatePage:
        """Compares the user's memories with older ones, newest first, until a page of pairs is found.

        A page looks at `STRETCH * STRETCHES` memories at most. Texts that are long, hold for a time only or
        look like a prompt injection are left out, as they are when they are added. Logs the read of the pairs.
        `after`: the `next` of the page before, or its text; empty: the first page.

        Raises:
            Forbidden: the caller is an app.
            Invalid: `after` is no place.
        """
        caller.must_be_owner("see near duplicates", everywhere=False)
        caller.may_read()
        if isinstance(after, str):
            after = Place.of(after) if after else NEWEST
        space = self._spaces.serving
        least = least_similarity(self._settings, space.model)
        if least is None:
            return DuplicatePage([], note=NO_THRESHOLD)
        try:
            return await self._page(caller, space, least, after)
        except (EmbedderUnavailable, IndexUnavailable) as error:
            return DuplicatePage([], note=NO_EMBEDDER if isinstance(error, EmbedderUnavailable) else NO_INDEX)

    async def _page(self, caller: Caller, space: Space, least: float, after: Place) -> DuplicatePage:
        pairs: list[_Near] = []
        looked_at = 0
        following: Place | None = after
        for _ in range(STRETCHES):
            rows = await self._stretch(caller, space, after)
            near = await self._near(caller, space, [row for row in rows if row.compared], least)
            near, looked = _until_full(near, rows, PAIRS - len(pairs))
            pairs += near
            looked_at += looked
            if looked == len(rows) < STRETCH:
                following = None
                break
            following = after = Place(rows[looked - 1].created_at, rows[looked - 1].id)
            if len(pairs) >= PAIRS:
                break
        return DuplicatePage(await self._records(caller, pairs), looked_at, following)

    async def _stretch(self, caller: Caller, space: Space, after: Place) -> list[Any]:
        values = {"model": space.model, "at": after.at, "id": after.id, "most": STRETCH}
        async with self._database.planned() as tx:
            return await stretch(everywhere=caller.everywhere).rows(tx, caller.parameters | values)

    async def _near(self, caller: Caller, space: Space, rows: Sequence[Any], least: float) -> list[_Near]:
        """The near duplicates of the rows that are older than they, in the order of the rows."""
        free = asyncio.Semaphore(SEARCHES)

        async def hits(row: Any) -> list[Hit]:
            where = Filter(caller.user_id, namespaces=(row.namespace,), kinds=(row.kind,), excluded=(row.id,))
            async with free:
                matches = await space.search(await _vector(space, row), where, NEAREST)
            return [hit for hit in matches if hit.score >= least]

        neighbours = await asyncio.gather(*map(hits, rows))
        ids = list({hit.id for some in neighbours for hit in some} | {row.id for row in rows})
        statement = comparable(everywhere=caller.everywhere)
        async with self._database.planned() as tx:
            others = {row.id: row for row in await statement.rows(tx, caller.parameters | {"ids": ids})}
            exclusions = set(await EXCLUDED_PAIRS.rows(tx, {"ids": ids}))
        candidates = [
            (row, others[hit.id], hit.score)
            for row, some in zip(rows, neighbours, strict=True)
            for hit in some
            if hit.id in others and _may_repeat(row, others[hit.id]) and _order_pair(row.id, hit.id) not in exclusions
        ]
        # In a thread, because comparing two long texts takes milliseconds.
        return await asyncio.to_thread(_judge_pairs, candidates)

    async def _records(self, caller: Caller, near_pairs: Sequence[_Near]) -> list[DuplicatePair]:
        ids = list(dict.fromkeys(row.id for near in near_pairs for row in (near.newer, near.older)))
        records = await pages.fetch_records(self._database, ListAccess(caller), MemoryQuery(), ids)
        by_id = {(record.id, record.revision): record for record in records}
        pairs = []
        for near in near_pairs:
            newer, older = (by_id.get((row.id, row.revision)) for row in (near.newer, near.older))
            if newer is not None and older is not None:
                pairs.append(DuplicatePair(newer, older, round(near.similarity, 4), near.relation is Relation.MORE))
        return pairs

    @retry_on_conflict
    async def merge(self, caller: Caller, memory: SeenVersion, other: SeenVersion) -> UUID:
        """Keep one memory; the other is superseded by it. Returns the id under which this can be undone.

        Raises:
            Forbidden: the caller is an app, or may not write.
            NotFound: one of the memories is not active any more, or is not the caller's.
            ConflictError: one of the texts was changed since it was shown.
        """
        _may_decide(caller, memory.id, other.id)
        action = uuid4()
        async with self._database.transaction() as tx:
            await locked(tx, caller, [memory, other])
            await undoing.remember(tx, action, Memory.id == other.id, caller.parameters)
            await superseding.supersede(tx, caller, other.id, memory.id)
        self._written["supersede"] += 1
        self._delivery.wake()
        return action

    @retry_on_conflict
    async def keep(
        self, caller: Caller, one: SeenVersion, other: SeenVersion, *, decision: Literal["both", "different"] = "both"
    ) -> None:
        """Keep both memories, and do not list the pair again. Raises as `merge` does.

        `decision`: both hold, or they are about different things.
        """
        _may_decide(caller, one.id, other.id)
        async with self._database.transaction() as tx:
            await locked(tx, caller, [one, other])
            first, second = _order_pair(one.id, other.id)
            row = insert(KeptPair).values(first=first, second=second, decision=decision)
            changed = row.on_conflict_do_update(index_elements=["first", "second"], set_={"decision": decision})
            await tx.execute(changed)
            await audit_log.record(tx, caller, AuditAction.MEMORY_KEEP_BOTH, [first, second])

    @retry_on_conflict
    async def list_again(self, caller: Caller, one: UUID, other: UUID) -> None:
        """List a kept pair as near duplicates again.

        Raises:
            Forbidden: the caller is an app, or may not write.
            NotFound: the pair was not kept, or is not the caller's.
        """
        _may_decide(caller, one, other)
        first, second = _order_pair(one, other)
        mine = select(Memory.id).where(Memory.id == func.any([first, second]), is_rewritable(caller))
        pair = and_(KeptPair.first == first, KeptPair.second == second)
        both = and_(KeptPair.first.in_(mine), KeptPair.second.in_(mine))
        async with self._database.transaction() as tx:
            if not (await tx.execute(delete(KeptPair).where(pair, both), caller.parameters)).rowcount:
                raise NotFound("There is nothing to undo: this pair is not kept.")
            undone = {"operation": "undo"}
            await audit_log.record(tx, caller, AuditAction.MEMORY_KEEP_BOTH, [first, second], detail=undone)


def _may_decide(caller: Caller, one: UUID, other: UUID) -> None:
    caller.must_be_owner("decide about near duplicates", everywhere=False)
    caller.may_write()
    caller.may_read()
    if one == other:
        raise Invalid("older", "must be another memory than the newer one")


def _order_pair(one: UUID, other: UUID) -> tuple[UUID, UUID]:
    return (one, other) if one < other else (other, one)


async def _vector(space: Space, row: Any) -> Vector:
    """The vector of a text: the one that is stored, or a new one if the text has none or several."""
    stored = np.frombuffer(row.vector or b"", dtype="<f4")
    return stored if len(stored) == await space.dimension() else (await space.query(row.content)).vector


def _may_repeat(newer: Any, older: Any) -> bool:
    """Returns True if a memory is older than another one, and of its kind."""
    return newer.kind == older.kind and (older.created_at, older.id) < (newer.created_at, newer.id)


def _judge_pairs(candidates: Iterable[tuple[Any, Any, float]]) -> list[_Near]:
    """Those pairs of a newer and an older memory that say the same."""
    pairs = []
    for newer, older, similarity in candidates:
        one, other = (item(row.namespace, row.key, row.content) for row in (older, newer))
        if (relation := sameness(one, other).relation) is not None:
            pairs.append(_Near(newer, older, similarity, relation))
    return pairs


def _until_full(near: Sequence[_Near], rows: Sequence[Any], limit: int) -> tuple[list[_Near], int]:
    """The pairs of as many rows as are needed to have `limit` pairs, and the number of these rows."""
    of_row = Counter(each.newer.id for each in near)
    count = 0
    for looked, row in enumerate(rows, 1):
        count += of_row[row.id]
        if count >= limit:
            return list(near[:count]), looked
    return list(near), len(rows)


@cache
def stretch(*, everywhere: bool) -> CompiledStatement:
    """The next memories of the user, newest first, with their vectors. `compared`: the text can be compared.

    Binds the caller's parameters, `model`, `most`, and the `at` and `id` of a `Place`.
    """
    caller = Caller.anyone(owner=True, default="user", everywhere=everywhere)
    after = tuple_(bindparam("at", type_=DateTime(timezone=True)), bindparam("id", type_=Uuid))
    # The limit comes before the other conditions, so that a page looks at few memories however few can be compared.
    some = (
        select(Memory.id)
        .where(readable_by(caller, Memory), tuple_(Memory.created_at, Memory.id) < after)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(bindparam("most", type_=Integer))
        .subquery("some")
    )
    stored = and_(
        Embedding.kind == literal_column("'memory'"),
        Embedding.id == Memory.id,
        Embedding.model == bindparam("model", type_=Text()),
        Embedding.text_hash == Memory.hash,
    )
    query = (
        _rows()
        .add_columns(Embedding.vector, and_(is_rewritable(caller), is_comparable()).label("compared"))
        .join(some, some.c.id == Memory.id)
        .outerjoin(Embedding, stored)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
    )
    return CompiledStatement(query)


@cache
def comparable(*, everywhere: bool) -> CompiledStatement:
    """Those of the memories `ids` that can be compared. Binds the caller's parameters too."""
    caller = Caller.anyone(owner=True, default="user", everywhere=everywhere)
    some = Memory.id == func.any(bindparam("ids", type_=ARRAY(Uuid)))
    return CompiledStatement(_rows().where(some, is_rewritable(caller), is_comparable()))


def _rows() -> Any:
    return select(
        Memory.id, Memory.created_at, Memory.namespace, Memory.kind, Memory.key, Memory.content, Memory.revision
    )


_SOME = func.any(bindparam("ids", type_=ARRAY(Uuid)))
EXCLUDED_PAIRS = CompiledStatement(
    select(KeptPair.first, KeptPair.second).where(KeptPair.first == _SOME, KeptPair.second == _SOME), plain=True
)
"""The pairs among the memories `ids` that the user keeps."""
