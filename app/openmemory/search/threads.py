"""Scores memories by their threads: the answer to a question often stands next to the memory that repeats its words.

In a conversation, one person asks and another answers. A memory therefore gains from its neighbours in its thread, by
their scores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
from openmemory.search import names
from openmemory.search.as_of import unchanged_since
from openmemory.search.context import SearchContext
from openmemory.search.corpus import MEMORIES, Corpus
from openmemory.search.fusion import Fused, within_one
from openmemory.search.late_interaction import TokenReader

NEIGHBOUR_WEIGHT = (0.3, 0.15)
"""The share of its score that a hit adds to the adjacent memories, and to those one step further."""

MAX_HITS = 15
"""The number of top hits that add to their neighbours."""


class ThreadNeighbour(NamedTuple):
    """A hit in a thread and a memory `step` positions after it there, or before it if `step` is negative.

    `flagged` and `neighbour_flagged` tell which of the two was flagged as a prompt injection.
    """

    hit: UUID
    flagged: bool
    neighbour: UUID
    step: int
    neighbour_flagged: bool = False

    @property
    def weight(self) -> float:
        """The share of the hit's score that the neighbour gets."""
        return NEIGHBOUR_WEIGHT[abs(self.step) - 1]


class Beside(NamedTuple):
    """The data that one statement reads of the best hits: their neighbours in threads, and the names that other hits
    share with the first."""

    links: list[ThreadNeighbour]
    named: Mapping[UUID, Sequence[str]]


def with_threads(ranked: Sequence[Fused], links: Iterable[ThreadNeighbour]) -> list[Fused]:
    """The hits and their neighbours with the scores from their threads, best first. Equal scores keep their order.

        score = fused + Σ over neighbours of NEIGHBOUR_WEIGHT[distance - 1] · their fused

    All scores are then divided by the best one if that is above 1. A hit that is flagged as a prompt injection adds
    only what it keeps of its score. A neighbour that neither retrieval arm found has only the added score.
    """
    known = {hit.id: hit for hit in ranked}
    beside: dict[UUID, float] = defaultdict(float)
    for link in links:
        hit = known[link.hit].lowered() if link.flagged else known[link.hit]
        beside[link.neighbour] += link.weight * hit.score
    for id_, near in beside.items():
        hit = known.get(id_) or Fused(id_, 0.0, 0.0, 0.0, None, None)
        known[id_] = hit._replace(score=hit.score + near, beside=near)
    return within_one(list(known.values())) if beside else list(ranked)


def preceding(links: Iterable[ThreadNeighbour]) -> dict[UUID, list[UUID]]:
    """For the hits and their neighbours, the memories just before each of them in its thread, oldest first.

    At most as many as `NEIGHBOUR_WEIGHT` has steps. Memories that are flagged as prompt injections are left out.
    """
    threads: dict[UUID, dict[int, UUID]] = defaultdict(dict)
    flagged: set[UUID] = set()
    for link in links:
        threads[link.hit] |= {0: link.hit, link.step: link.neighbour}
        flagged |= {link.hit} if link.flagged else set()
        flagged |= {link.neighbour} if link.neighbour_flagged else set()
    found: dict[UUID, list[UUID]] = {}
    for members in threads.values():
        thread = [members[step] for step in sorted(members)]
        for place, id_ in enumerate(thread):
            before = [one for one in thread[max(0, place - len(NEIGHBOUR_WEIGHT)) : place] if one not in flagged]
            if len(before) > len(found.get(id_, ())):
                found[id_] = before
    return found


async def add_threads(
    context: SearchContext, hits: Sequence[Fused], reader: TokenReader | None
) -> tuple[Sequence[Fused], Beside]:
    """The hits and their neighbours with the scores from their threads, and what was read of the hits.

    With a `reader`, the tokens of the best hits are read too. Most of them are still the best afterwards.
    """
    if not hits:
        return hits, Beside([], {})
    caller, as_of = context.caller, context.query.as_of
    async with context.database.statement() as tx:
        found = await beside(tx, caller, hits, context.space.model, reader, corpus=context.corpus)
        if as_of is not None:
            there = await unchanged_since(tx, caller, [link.neighbour for link in found.links], as_of)
            # The names are those of today's text.
            found = Beside([link for link in found.links if link.neighbour in there], {})
    return with_threads(hits, found.links), found


async def beside(
    tx: Tx,
    caller: Caller,
    hits: Sequence[Fused],
    model: str,
    reader: TokenReader | None,
    *,
    corpus: Corpus = MEMORIES,
) -> Beside:
    """Returns the thread neighbours of the best hits, and the names that others share with the first. The caller must
    be able to read all of them. Passes the stored tokens of the best hits to the `reader`.

    Each takes less time than the overhead of a statement, so one reads them all.
    """
    unread = [] if reader is None else reader.unread(hits)
    values = {**caller.parameters, "hits": array_of(hit.id for hit in hits[:MAX_HITS]), **names.wanted(hits)}
    values |= tokens.wanted(caller.user_id, model, unread)
    rows = await _beside(caller.owner, caller.default, corpus, bool(unread)).rows(tx, values)
    if reader is not None and unread:
        [(heads, packed)] = [row[7:] for row in rows if row[0] is row[5] is None]
        reader.keep(unread, tokens.unpacked(unread, heads, packed))
    return Beside(
        [_link(row[:5]) for row in rows if row[0] is not None], {row[5]: row[6] for row in rows if row[5] is not None}
    )


def _link(row: Sequence[Any]) -> ThreadNeighbour:
    hit, labels, neighbour, neighbour_labels, step = row
    return ThreadNeighbour(hit, LABEL in labels, neighbour, step, LABEL in neighbour_labels)


@cache
def _beside(owner: bool, default: Default, corpus: Corpus, with_tokens: bool) -> CompiledStatement:
    near, named = (part(owner, default, corpus).subquery() for part in (_linked, names.names_held))
    kept = tokens.packed(corpus.kind).columns(heads=LargeBinary, tokens=LargeBinary).subquery()
    none: Any = literal_column("NULL")
    # The first part decides the types.
    others: list[Any] = [literal_column(f"NULL::{type_}") for type_ in ("uuid", "text[]", "bytea", "bytea")]
    parts = [select(*near.c, *others), select(*[none] * 5, *named.c, none, none)]
    if with_tokens:
        parts.append(select(*[none] * 7, kept.c.heads, kept.c.tokens))
    return CompiledStatement(union_all(*parts), plain=True, binary=True)


def _linked(owner: bool, default: Default, corpus: Corpus) -> Select[Any]:
    """Selects the columns of `ThreadNeighbour` for the ids bound as `hits`, with the labels of both."""
    caller, rows = Caller.anyone(owner=owner, default=default), corpus.rows
    hits = (
        func.unnest(cast(bindparam("hits", type_=Text), ARRAY(Uuid)))
        .table_valued(column("id", Uuid), name="hits")
        .render_derived()
    )
    near = union_all(*(select(*_near(caller, rows, backwards).subquery().c) for backwards in (True, False))).lateral(
        "near"
    )
    return (
        select(rows.id, rows.labels, near.c.id, near.c.labels, near.c.step)
        .select_from(hits)
        .join(rows, rows.id == hits.c.id)
        .join(near, true())
        .where(rows.thread_id.is_not(None), readable_by(caller, rows))
    )


def _near(caller: Caller, rows: Any, backwards: bool) -> Select[Any]:
    """Selects the memories just before or just after a memory of a thread, with their steps from it."""
    other: Any = aliased(rows)
    here, there = tuple_(rows.created_at, rows.id), tuple_(other.created_at, other.id)
    order: list[Any] = [other.created_at, other.id]
    if backwards:
        order = [key.desc() for key in order]
    step = func.row_number().over(order_by=order)
    return (
        select(other.id, other.labels, (-step if backwards else step).label("step"))
        .where(
            other.user_id == rows.user_id,
            other.thread_id == rows.thread_id,
            other.namespace == rows.namespace,
            there < here if backwards else there > here,
            readable_by(caller, other),
        )
        .order_by(*order)
        .limit(literal_column(str(len(NEIGHBOUR_WEIGHT))))
        .correlate(rows)
    )
