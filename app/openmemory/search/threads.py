"""Scores memories by their threads: the answer to a question often stands next to the memory that repeats its words.

In a conversation, one person asks and another answers. A thread that contains all words of a question is probably about
it, even if no single memory contains them all. A memory therefore gains from its neighbours in its thread, by their
scores, and from the words of the whole thread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    LargeBinary,
    Select,
    Text,
    Uuid,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import aliased

from openmemory.access.readable import readable_by
from openmemory.content_policy.injection import LABEL
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.index import tokens
from openmemory.index.sync.entries import array_of
from openmemory.index.tokens import StoredTokens
from openmemory.memories.models import Memory
from openmemory.search.as_of import unchanged_since
from openmemory.search.context import SearchContext
from openmemory.search.fusion import Fused, within_one
from openmemory.search.late_interaction import TokenReader
from openmemory.search.lexical import LexicalHit, Thread

NEIGHBOUR_WEIGHT = (0.3, 0.15)
"""The share of its score that a hit adds to the adjacent memories, and to those one step further."""

THREAD_WEIGHT = 0.5
"""The maximum that the words of a whole thread add. Memories of the thread that contains most of them get it."""

MAX_HITS = 15
"""The number of top hits that add to their neighbours and gain from their threads."""


class ThreadNeighbour(NamedTuple):
    """A hit in a thread and a memory `step` positions away from it there. Without a neighbour, `step` is 0."""

    hit: UUID
    thread: Thread
    flagged: bool
    neighbour: UUID | None
    step: int


def with_threads(ranked: Sequence[Fused], links: Iterable[ThreadNeighbour], words: Iterable[LexicalHit]) -> list[Fused]:
    """The hits and their neighbours with the scores from their threads, best first. Equal scores keep their order.

        score = fused + Σ over neighbours of NEIGHBOUR_WEIGHT[distance - 1] · their fused
            + THREAD_WEIGHT · together / max(together)

    All scores are then divided by the best one if that is above 1. A hit that is flagged as a prompt injection adds
    only what it keeps of its score. A neighbour that neither retrieval arm found has only the added score.
    """
    known = {hit.id: hit for hit in ranked}
    thread_of: dict[UUID, Thread] = {}
    beside: dict[UUID, float] = defaultdict(float)
    for link in links:
        thread_of[link.hit] = link.thread
        if link.neighbour is not None:
            thread_of[link.neighbour] = link.thread
            hit = known[link.hit].lowered() if link.flagged else known[link.hit]
            beside[link.neighbour] += NEIGHBOUR_WEIGHT[link.step - 1] * hit.score
    if not thread_of:
        return list(ranked)
    together = {hit.thread: hit.together for hit in words if hit.thread is not None}
    most = max(together.values(), default=0.0)
    found = [*ranked, *(Fused(id_, 0.0, 0.0, 0.0, None, None) for id_ in thread_of.keys() - known.keys())]
    raised = []
    for hit in found:
        if (thread := thread_of.get(hit.id)) is None:
            raised.append(hit)
            continue
        near, added = beside.get(hit.id, 0.0), THREAD_WEIGHT * together.get(thread, 0.0) / most if most > 0 else 0.0
        raised.append(hit._replace(score=hit.score + near + added, beside=near, thread=added))
    return within_one(raised)


async def add_threads(
    context: SearchContext, hits: Sequence[Fused], words: Iterable[LexicalHit], reader: TokenReader | None
) -> tuple[Sequence[Fused], list[ThreadNeighbour]]:
    """The hits and their neighbours with the scores from their threads, and these neighbours.

    With a `reader`, the same statement reads the tokens of the best hits. Most of them are still the best afterwards.
    """
    if not hits:
        return hits, []
    caller, as_of = context.caller, context.query.as_of
    near_to = [hit.id for hit in hits[:MAX_HITS]]
    async with context.database.statement() as tx:
        if reader is not None and (unread := reader.unread(hits)):
            near, found = await links_and_tokens(tx, caller, near_to, context.space.model, unread)
            reader.keep(unread, found)
        else:
            near = await links(tx, caller, near_to)
        if as_of is not None:
            others = [link.neighbour for link in near if link.neighbour is not None]
            there = {None, *(await unchanged_since(tx, caller, others, as_of))}
            near = [link for link in near if link.neighbour in there]
    return with_threads(hits, near, words), near


async def links(tx: Tx, caller: Caller, hits: Sequence[UUID]) -> list[ThreadNeighbour]:
    """Returns the thread neighbours of the hits. The caller must be able to read both."""
    rows = await _links(caller.owner, caller.default).rows(tx, {**caller.parameters, "hits": array_of(hits)})
    return [_link(row) for row in rows]


async def links_and_tokens(
    tx: Tx, caller: Caller, hits: Sequence[UUID], model: str, best: Sequence[UUID]
) -> tuple[list[ThreadNeighbour], StoredTokens]:
    """Combines `links` of the hits and `tokens.of_memories` of the best in one statement.

    Either takes less time than the overhead of a statement.
    """
    values = {**caller.parameters, "hits": array_of(hits), **tokens.wanted(caller.user_id, model, best)}
    rows = await _links_and_tokens(caller.owner, caller.default).rows(tx, values)
    [(heads, packed)] = [row[-2:] for row in rows if row[0] is None]
    return [_link(row[:-2]) for row in rows if row[0] is not None], tokens.unpacked(best, heads, packed)


def _link(row: Sequence[Any]) -> ThreadNeighbour:
    hit, namespace, thread, labels, neighbour, step = row
    return ThreadNeighbour(hit, Thread(namespace, thread), LABEL in labels, neighbour, step or 0)


@cache
def _links(owner: bool, default: Default) -> CompiledStatement:
    return CompiledStatement(_linked(owner, default), plain=True)


@cache
def _links_and_tokens(owner: bool, default: Default) -> CompiledStatement:
    near = _linked(owner, default).subquery()
    kept = tokens.PACKED.columns(heads=LargeBinary, tokens=LargeBinary).subquery()
    none: Any = literal_column("NULL")
    return CompiledStatement(
        union_all(select(*near.c, none, none), select(*(none for _ in near.c), kept.c.heads, kept.c.tokens)),
        plain=True,
        binary=True,
    )


def _linked(owner: bool, default: Default) -> Select[Any]:
    """Selects the columns of `ThreadNeighbour` for the ids bound as `hits`, and the labels. Namespace and thread
    are separate."""
    caller = Caller.anyone(owner=owner, default=default)
    hits = (
        func.unnest(cast(bindparam("hits", type_=Text), ARRAY(Uuid)))
        .table_valued(column("id", Uuid), name="hits")
        .render_derived()
    )
    near = union_all(*(select(*_near(caller, backwards).subquery().c) for backwards in (True, False))).lateral("near")
    return (
        select(Memory.id, Memory.namespace, Memory.thread_id, Memory.labels, near.c.id, near.c.step)
        .select_from(hits)
        .join(Memory, Memory.id == hits.c.id)
        .join(near, true(), isouter=True)
        .where(Memory.thread_id.is_not(None), readable_by(caller, Memory))
    )


def _near(caller: Caller, backwards: bool) -> Select[Any]:
    """Selects the memories just before or just after a memory of a thread, with their distances."""
    other = aliased(Memory)
    here, there = tuple_(Memory.created_at, Memory.id), tuple_(other.created_at, other.id)
    order: list[Any] = [other.created_at, other.id]
    if backwards:
        order = [key.desc() for key in order]
    return (
        select(other.id, func.row_number().over(order_by=order).label("step"))
        .where(
            other.user_id == Memory.user_id,
            other.thread_id == Memory.thread_id,
            other.namespace == Memory.namespace,
            there < here if backwards else there > here,
            readable_by(caller, other),
        )
        .order_by(*order)
        .limit(literal_column(str(len(NEIGHBOUR_WEIGHT))))
        .correlate(Memory)
    )
