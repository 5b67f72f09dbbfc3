"""Finds memories that were rewritten or archived since an earlier time, as they were then. The current index and words
do not find them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import (
    CTE,
    Integer,
    Text,
    Uuid,
    and_,
    bindparam,
    column,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, aggregate_order_by

from openmemory.access.readable import readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.identity.caller import Caller, Default
from openmemory.index.bm25 import K1, MEAN_LENGTH, B
from openmemory.index.models import Embedding
from openmemory.index.port import Hit, Vector
from openmemory.memories.models import ACTIVE, Memory
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.candidates.query_analysis import QueryAnalysis
from openmemory.search.context import SearchContext
from openmemory.search.sql.as_of import AS_OF, as_of_state, join_state, states
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate

_LANGUAGE: Any = literal_column("(select language from lexicon)::regconfig")

ASIDE = 2_000
"""The maximum number of changed memories that are scanned, the latest changes first."""


class ChangedMemories(NamedTuple):
    """The memories that were changed since, as both arms would have listed them, best first."""

    dense: list[Hit]
    words: list[LexicalHit]


async def changed_memories(context: SearchContext, analysis: QueryAnalysis, vector: Vector | None) -> ChangedMemories:
    """The memories that existed at the time as of which the search answers and were changed since.

    They are found by their words of that time and, if they were archived and still have vectors, by those.
    """
    caller, query = context.caller, context.query
    idf = {lexeme.text: lexeme.idf for lexeme in analysis.lexemes}
    async with context.database.statement() as tx:
        parameters = {
            **context.filter.parameters,
            "as_of": query.as_of,
            "lexemes": list(idf),
            "model": context.space.model,
            "with_vectors": vector is not None,
        }
        rows = await _statement(caller.owner, caller.default, context.filter.shape).rows(tx, parameters)
    return await asyncio.to_thread(_hits_of, rows, idf, vector)


def _hits_of(rows: Sequence[Any], idf: Mapping[str, float], vector: Vector | None) -> ChangedMemories:
    lexical_hits, dense_hits = [], []
    total = (K1 + 1) * sum(idf.values())
    for row in rows:
        long = K1 * (1 - B + B * row.length / MEAN_LENGTH)
        pairs = zip(row.lexemes or (), row.times or (), strict=True)
        if (score := sum(idf[lexeme] * times * (K1 + 1) / (times + long) for lexeme, times in pairs)) > 0:
            lexical_hits.append(LexicalHit(row.id, score, coverage=min(score / total, 1.0)))
        if vector is not None and row.vector:
            chunks = np.frombuffer(row.vector, dtype="<f4")
            if chunks.size % len(vector) == 0:
                dense_hits.append(Hit(row.id, float((chunks.reshape(-1, len(vector)) @ vector).max())))
    return ChangedMemories(
        sorted(dense_hits, key=lambda hit: -hit.score), sorted(lexical_hits, key=lambda hit: -hit.score)
    )


def _aside(owner: bool) -> CTE:
    """The ids of the memories that were changed last and written before the time. They are selected first, each through
    an index, because finding the earlier state of each memory takes longer than everything else."""
    mine = Memory.user_id == bindparam("caller_user_id", type_=Uuid()), Memory.created_at <= AS_OF
    ids_by_time = select(Memory.id, Memory.updated_at)
    rewritten_rows = ids_by_time.where(
        *mine, Memory.state == ACTIVE, Memory.updated_at > AS_OF, Memory.revision > literal_column("1")
    )
    archived_rows = ids_by_time.where(*mine, Memory.state != ACTIVE)
    last = [
        part.order_by(Memory.updated_at.desc(), Memory.id).limit(literal_column(str(ASIDE))).subquery()
        for part in ((rewritten_rows, archived_rows) if owner else (rewritten_rows,))
    ]
    all_rows = union_all(*(select(part.c.id, part.c.updated_at) for part in last)).subquery()
    newest = select(all_rows.c.id).order_by(all_rows.c.updated_at.desc(), all_rows.c.id)
    return newest.limit(literal_column(str(ASIDE))).cte("aside").prefix_with("MATERIALIZED")


@by_shape
def _statement(owner: bool, default: Default, shape: Shape) -> CompiledStatement:
    """The memories that were changed since, with the frequency of each lexeme, and their vectors."""
    caller = Caller.anyone(owner=owner, default=default)
    parts = as_of_state(caller)
    aside = _aside(owner)
    embedding_is_current = and_(
        bindparam("with_vectors"),
        Embedding.kind == literal_column("'memory'"),
        Embedding.id == Memory.id,
        Embedding.model == bindparam("model", type_=Text()),
        Embedding.text_hash == Memory.hash,
        parts.same,
    )
    memories = (
        select(
            Memory.id,
            func.lexical_words(_LANGUAGE, parts.content).label("words"),
            Embedding.vector,
        )
        .select_from(
            join_state(aside.join(Memory, Memory.id == aside.c.id), parts).join(
                Embedding, embedding_is_current, isouter=True
            )
        )
        .where(
            or_(Memory.state != ACTIVE, ~parts.same),
            parts.there,
            readable_by(caller, Memory, states=states(owner)),
            predicate(shape),
        )
        .cte("found")
        .prefix_with("MATERIALIZED")
    )
    terms = (
        func.unnest(memories.c.words)
        .table_valued(column("lexeme", Text), column("positions", ARRAY(Integer)), column("weights", ARRAY(Text)))
        .render_derived("held")
    )
    is_query_term = terms.c.lexeme == func.any(bindparam("lexemes", type_=ARRAY(Text)))
    times = func.greatest(func.cardinality(terms.c.positions), literal_column("1"))
    lexemes, counts = (
        select(func.array_agg(aggregate_order_by(what, terms.c.lexeme)))
        .select_from(terms)
        .where(is_query_term)
        .correlate(memories)
        .scalar_subquery()
        for what in (terms.c.lexeme, times)
    )
    return CompiledStatement(
        select(
            memories.c.id,
            func.length(func.ts_filter(memories.c.words, literal_column("'{a,b,c,d}'"))).label("length"),
            lexemes.label("lexemes"),
            counts.label("times"),
            memories.c.vector,
        ).order_by(memories.c.id),
        prepare=is_usual(shape),
    )
