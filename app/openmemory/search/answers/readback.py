"""Reads candidates back from PostgreSQL. Removes those that the caller may not read, and logs those that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Text,
    bindparam,
    case,
    cast,
    column,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION
from sqlalchemy.dialects.postgresql import UUID as PgUUID

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.content_policy.injection import LABEL, anywhere, instructs
from openmemory.content_policy.secrets import redacted
from openmemory.database.compiled import CompiledStatement
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.caller import Caller, Default
from openmemory.index.entries import array_of
from openmemory.index.models import ItemKind
from openmemory.memories.models import Memory
from openmemory.memories.repository import CATEGORY_NAMES, TEXT_APP_NAME
from openmemory.search.answers import newer
from openmemory.search.answers.newer import Placed
from openmemory.search.answers.results import ReadRows
from openmemory.search.context import SearchContext
from openmemory.search.corpus import MEMORIES
from openmemory.search.query.text import literal_text
from openmemory.search.ranking.linear_model import Ranked
from openmemory.search.schemas import Method
from openmemory.search.sql.as_of import as_of_state, findable
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate
from openmemory.sources.models import WITH_PATHS, Passage, Source

LITERAL_WORDS, LITERAL_CHARACTERS = 3, 60
"""A query with more words or characters is not compared with texts as it is written: no such query is a quotation."""

SPARE = 5
"""Extra candidates in the first read-back, in place of those that the caller may not read."""

_ACTIONS = {ItemKind.MEMORY: AuditAction.MEMORY_SEARCH, ItemKind.PASSAGE: AuditAction.PASSAGE_SEARCH}

_IDS: Any = ARRAY(PgUUID(as_uuid=True))


async def read_best(context: SearchContext, ranked_hits: Sequence[Ranked], method: Method, read_rows: ReadRows) -> None:
    """Reads back hits that were not read back before, best first, until none of the rest can be among the best.

    Of those that score too little to be shown, reads back what contains the query as it is written. If a flagged memory
    is among the best, the others are read whatever they score: a text that somebody planted must not make them look
    irrelevant.
    """
    evident = [hit for hit in ranked_hits if not read_rows.bounded or hit.score >= hit.least]
    await _read(context, evident, method, read_rows)
    if len(evident) == len(ranked_hits):
        read_rows.cut = False
        return
    evident_ids = {hit.id for hit in evident}
    below = [hit for hit in ranked_hits if hit.id not in evident_ids]
    if literal := literally(context.query.text):
        await _read(context, [hit for hit in below if hit.bm25 is not None], method, read_rows, literal=literal)
    read_rows.cut = not any(read_rows.hits[id_].flagged or LABEL in row.labels for id_, row in read_rows.rows.items())
    if not read_rows.cut:
        await _read(context, below, method, read_rows)


async def _read(
    context: SearchContext,
    ranked_hits: Sequence[Ranked],
    method: Method,
    read_rows: ReadRows,
    *,
    literal: str | None = None,
) -> None:
    """Reads back hits. `literal`: only those whose text contains it."""
    hits = [(hit.id, hit.score) for hit in ranked_hits if hit.id not in read_rows.tried_ids]
    start, count = 0, read_rows.limit + SPARE
    while start < len(hits) and (missing_count := read_rows.remaining(hits[start][1])):
        some = hits[start : start + count]
        rows = await _rows(context, some, limit=missing_count, method=method, literal=literal)
        read_rows.rows |= {row.id: row for row in rows}
        # The statement stopped as soon as it had the requested number of rows.
        last_position = rows[-1].position if len(rows) == missing_count else len(some)
        read_rows.tried_ids.update(id_ for id_, _ in some[:last_position] if literal is None or id_ in read_rows.rows)
        start, count = start + last_position, len(hits)


async def read_newer(context: SearchContext, hits: Sequence[Ranked], method: Method, read_rows: ReadRows) -> Placed:
    """Reads the memories that may replace one of these results, and places them before it. Logs each read."""
    rows = {hit.id: read_rows.rows[hit.id] for hit in hits}
    tried_ids, last_rows = set(read_rows.rows), list(rows.values())
    for _ in range(newer.CHAIN):
        scores = {id_: read_rows.hits[row.id].score for row in reversed(last_rows) for id_ in newer.newer_ids(row)}
        rows |= {id_: read_rows.rows[id_] for id_ in scores if id_ in read_rows.rows}
        more = [(id_, score) for id_, score in scores.items() if id_ not in tried_ids]
        if not more:
            break
        tried_ids |= scores.keys()
        last_rows = await _rows(context, more, limit=len(more), method=method)
        for row in last_rows:
            read_rows.hits.setdefault(row.id, Ranked(row.id, scores[row.id]))
        rows |= {row.id: row for row in last_rows}
    read_rows.rows |= rows
    hits_by_id = read_rows.hits | {hit.id: hit for hit in hits}
    return newer.place_newer(hits, rows, hits_by_id, context.query.text, context.limit, times=context.times)


async def _rows(
    context: SearchContext, candidates: Sequence[tuple[UUID, float]], *, limit: int, method: Method, **more: Any
) -> list[Any]:
    """As `readback`, with the labels of the texts as of the time of the search."""
    rows = await readback(context, candidates, limit=limit, method=method, **more)
    if context.query.as_of is not None:
        rows = await asyncio.to_thread(_label, rows, context.flags)
    return rows


def literally(query: str) -> str | None:
    """The query as it may be written in a text; None if it is too long for that."""
    text = literal_text(query.replace("\x00", " "))
    return text if text and len(text) <= LITERAL_CHARACTERS and len(text.split()) <= LITERAL_WORDS else None


def _label(rows: Sequence[Any], flags: bool) -> list[Any]:
    """Labels rows whose text may be an earlier version. The stored labels belong to the current text."""
    injection_flags = (flags and (instructs(row.content) or anywhere(row.metadata_)) for row in rows)
    return [
        row._replace(labels=[LABEL] if is_flagged else [])
        for row, is_flagged in zip(rows, injection_flags, strict=True)
    ]


async def log_search(context: SearchContext, method: Method | None = None) -> None:
    """Logs a search without results. The statement that reads results logs a search that has some."""
    detail = None if method is None else {"method": method}
    async with context.database.statement() as tx:
        await audit_log.record(tx, context.caller, _ACTIONS[context.corpus.kind], detail=detail)


@retry_on_conflict
async def readback(
    context: SearchContext,
    candidates: Sequence[tuple[UUID, float]],
    *,
    limit: int,
    method: Method,
    literal: str | None = None,
) -> list[Any]:
    """The best `limit` of the candidates (id and score, best first) that the caller may read, as rows, in order.
    `literal`: only those whose text contains it, in any case.

    One statement returns the rows that match the query's filters and `readable_by`, writes an access log entry for each
    of them, and writes an event of the audit log if there is any. The entries never contain a secret from the query.
    """
    caller, query = context.caller, context.query
    if context.corpus is MEMORIES:
        statement = _statement(caller.owner, caller.default, query.as_of is not None, context.filter.shape)
    else:
        statement = _passages(caller.owner, caller.default, context.filter.shape)
    values = {
        **context.filter.parameters,
        "as_of": query.as_of,
        "ids": array_of(id_ for id_, _ in candidates),
        "scores": f"{{{','.join([str(score) for _, score in candidates])}}}",
        "limit": limit,
        "literal": literal,
        "query": redacted(query.text),
        "namespaces": list(query.namespaces) or None,
        "method": method,
        **access_log.parameters(caller, AccessType.SEARCH),
        **audit_log.parameters(caller, _ACTIONS[context.corpus.kind], detail={"method": method}),
    }
    async with context.database.statement() as tx:
        return await statement.rows(tx, values)


def _candidates() -> Any:
    return (
        func.unnest(
            cast(bindparam("ids", type_=Text), _IDS), cast(bindparam("scores", type_=Text), ARRAY(DOUBLE_PRECISION))
        )
        .table_valued(
            column("id", PgUUID(as_uuid=True)), column("score", Float), with_ordinality="position", name="candidate"
        )
        .render_derived()
    )


def _contains_literal(content: Any) -> ColumnElement[bool]:
    """The predicate for rows whose text contains `literal`, if it is given."""
    literal = bindparam("literal", type_=Text)
    return or_(literal.is_(None), func.strpos(func.lower(content), func.lower(literal)) > literal_column("0"))


@by_shape
def _passages(owner: bool, default: Default, shape: Shape) -> CompiledStatement:
    """The statement of `readback` for passages. One event of the audit log lists those that are read."""
    candidates = _candidates()
    readable = (
        select(
            Passage.id,
            Passage.content,
            Passage.speaker,
            Passage.position.label("place"),
            Passage.thread_id,
            Source.title,
            case((Source.kind.in_(WITH_PATHS), Source.locator)).label("path"),
            Source.language,
            Passage.first_line,
            Passage.last_line,
            Passage.heading,
            Passage.namespace,
            Passage.kind,
            Passage.created_at,
            Passage.metadata_.label("metadata_"),
            Passage.labels,
            App.name.label("app_name"),
            candidates.c.score,
            candidates.c.position,
        )
        .join(candidates, candidates.c.id == Passage.id)
        .join(Source, Source.id == Passage.source_id)
        .join(App, App.id == Passage.app_id)
        .where(
            readable_by(Caller.anyone(owner=owner, default=default), Passage),
            predicate(shape, Passage),
            _contains_literal(Passage.content),
        )
        .order_by(candidates.c.position)
        .limit(bindparam("limit", type_=Integer))
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )
    statement = select(readable).add_cte(audit_log.inserted(readable, if_none=False)).order_by(readable.c.position)
    return CompiledStatement(statement, prepare=is_usual(shape))


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, shape: Shape) -> CompiledStatement:
    """The statement of `readback`. `as_then`: uses the memories as of the time that is bound as `as_of`."""
    caller = Caller.anyone(owner=owner, default=default)
    was = as_of_state(caller) if as_then else None
    source, may_find = findable(caller, was)
    candidates = _candidates()
    content: Any = Memory.content if was is None else was.content
    readable = (
        select(
            Memory.id,
            content.label("content"),
            (Memory.hash if was is None else func.md5(content)).label("hash"),
            Memory.created_at,
            (Memory.updated_at if was is None else was.updated_at).label("updated_at"),
            (Memory.metadata_ if was is None else was.metadata).label("metadata_"),
            Memory.namespace,
            Memory.thread_id,
            Memory.kind,
            Memory.labels,
            Memory.expires_at,
            Memory.valid_until,
            Memory.key,
            TEXT_APP_NAME.label("app_name"),
            App.name.label("added_by"),
            CATEGORY_NAMES.label("categories"),
            newer.column(None if was is None else was.same),
            candidates.c.score,
            candidates.c.position,
        )
        .select_from(source)
        .join(candidates, candidates.c.id == Memory.id)
        .join(App, App.id == Memory.app_id)
        .where(may_find, predicate(shape), _contains_literal(content))
        .order_by(candidates.c.position)
        .limit(bindparam("limit", type_=Integer))
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )
    metadata = func.jsonb_build_object(
        literal_column("'query'"),
        bindparam("query", type_=Text),
        literal_column("'score'"),
        readable.c.score,
        literal_column("'hash'"),
        readable.c.hash,
        literal_column("'search_method'"),
        bindparam("method", type_=Text),
    )
    logs = (
        access_log.inserted(readable, metadata, bindparam("namespaces", type_=ARRAY(Text))),
        audit_log.inserted(readable, if_none=False),
    )
    statement = select(readable).add_cte(*logs).order_by(readable.c.position)
    return CompiledStatement(statement, prepare=is_usual(shape))
