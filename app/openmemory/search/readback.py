"""Reads candidates back from PostgreSQL. Removes those that the caller may not read, and logs those that are read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
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
from openmemory.database.engine import Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.caller import Caller, Default
from openmemory.index.entries import array_of
from openmemory.index.models import ItemKind
from openmemory.memories.models import Memory
from openmemory.memories.repository import CATEGORY_NAMES, TEXT_APP_NAME
from openmemory.search import newer
from openmemory.search.as_of import as_of_state, findable
from openmemory.search.context import SearchContext
from openmemory.search.corpus import MEMORIES, Corpus
from openmemory.search.filter_sql import Shape, by_shape, is_usual, predicate
from openmemory.search.newer import Placed
from openmemory.search.query_text import as_written
from openmemory.search.ranking import Ranked
from openmemory.search.results import ReadRows
from openmemory.search.schemas import Method
from openmemory.sources.models import WITH_PATHS, Passage, Source

LITERAL_WORDS, LITERAL_CHARACTERS = 3, 60
"""A query with more words or characters is not looked for in texts as it is written: people ask no memory that way."""

SPARE = 5
"""Extra candidates in the first read-back, in place of those that the caller may not read."""

_ACTIONS = {ItemKind.MEMORY: AuditAction.MEMORY_SEARCH, ItemKind.PASSAGE: AuditAction.PASSAGE_SEARCH}

_IDS: Any = ARRAY(PgUUID(as_uuid=True))


async def readable(tx: Tx, caller: Caller, ids: Sequence[UUID], corpus: Corpus = MEMORIES) -> set[UUID]:
    """Those of the rows that the caller may read now. Logs nothing, because none of them is shown."""
    rows = await _may_read(caller.owner, caller.default, corpus).rows(tx, {**caller.parameters, "ids": list(ids)})
    return {id_ for (id_,) in rows}


@cache
def _may_read(owner: bool, default: Default, corpus: Corpus) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    rows = corpus.rows
    asked = rows.id == func.any(bindparam("ids", type_=_IDS))
    return CompiledStatement(select(rows.id).where(asked, readable_by(caller, rows)), plain=True)


async def read_best(context: SearchContext, ranked: Sequence[Ranked], method: Method, found: ReadRows) -> None:
    """Reads back hits that were not tried yet, best first, until none of the rest can be among the best.

    Of those that score too little to be shown, reads back what contains the query as it is written. If a flagged memory
    is among the best, the others are read whatever they score: a text that somebody planted must not make them look
    irrelevant.
    """
    evident = [hit for hit in ranked if not found.bounded or hit.score >= hit.least]
    await _read(context, evident, method, found)
    if len(evident) == len(ranked):
        found.cut = False
        return
    shown = {hit.id for hit in evident}
    below = [hit for hit in ranked if hit.id not in shown]
    if literal := literally(context.query.text):
        await _read(context, [hit for hit in below if hit.bm25 is not None], method, found, literal=literal)
    found.cut = not any(found.hits[id_].flagged or LABEL in row.labels for id_, row in found.rows.items())
    if not found.cut:
        await _read(context, below, method, found)


async def _read(
    context: SearchContext, ranked: Sequence[Ranked], method: Method, found: ReadRows, *, literal: str | None = None
) -> None:
    """Reads back hits. `literal`: only those whose text contains it."""
    hits = [(hit.id, hit.score) for hit in ranked if hit.id not in found.tried]
    start, count = 0, found.limit + SPARE
    while start < len(hits) and (wanted := found.wanted(hits[start][1])):
        some = hits[start : start + count]
        rows = await _rows(context, some, limit=wanted, method=method, literal=literal)
        found.rows |= {row.id: row for row in rows}
        # The statement stopped as soon as it had the requested number of rows.
        tried = rows[-1].position if len(rows) == wanted else len(some)
        found.tried.update(id_ for id_, _ in some[:tried] if literal is None or id_ in found.rows)
        start, count = start + tried, len(hits)


async def read_newer(context: SearchContext, hits: Sequence[Ranked], method: Method, found: ReadRows) -> Placed:
    """Reads the memories that may replace one of these results, and places them before it. Logs each read."""
    rows = {hit.id: found.rows[hit.id] for hit in hits}
    tried, looked = set(found.rows), list(rows.values())
    for _ in range(newer.CHAIN):
        scores = {id_: found.hits[row.id].score for row in reversed(looked) for id_ in newer.wanted(row)}
        rows |= {id_: found.rows[id_] for id_ in scores if id_ in found.rows}
        more = [(id_, score) for id_, score in scores.items() if id_ not in tried]
        if not more:
            break
        tried |= scores.keys()
        looked = await _rows(context, more, limit=len(more), method=method)
        for row in looked:
            found.hits.setdefault(row.id, Ranked(row.id, scores[row.id]))
        rows |= {row.id: row for row in looked}
    found.rows |= rows
    scored = found.hits | {hit.id: hit for hit in hits}
    return newer.placed(hits, rows, scored, context.query.text, context.limit)


async def _rows(
    context: SearchContext, candidates: Sequence[tuple[UUID, float]], *, limit: int, method: Method, **more: Any
) -> list[Any]:
    """As `readback`, with the labels of the texts as of the time of the search."""
    rows = await readback(context, candidates, limit=limit, method=method, **more)
    if context.query.as_of is not None:
        rows = await asyncio.to_thread(_labelled, rows, context.flags)
    return rows


def literally(query: str) -> str | None:
    """The query as it may be written in a text; None if it is too long for that."""
    said = as_written(query.replace("\x00", " "))
    return said if said and len(said) <= LITERAL_CHARACTERS and len(said.split()) <= LITERAL_WORDS else None


def _labelled(rows: Sequence[Any], flags: bool) -> list[Any]:
    """Labels rows whose text may be an earlier version. The stored labels belong to the current text."""
    flagged = (flags and (instructs(row.content) or anywhere(row.metadata_)) for row in rows)
    return [row._replace(labels=[LABEL] if found else []) for row, found in zip(rows, flagged, strict=True)]


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


def _says_literally(content: Any) -> ColumnElement[bool]:
    """The predicate for rows whose text contains `literal`, if it is given."""
    literal = bindparam("literal", type_=Text)
    return or_(literal.is_(None), func.strpos(func.lower(content), func.lower(literal)) > literal_column("0"))


@by_shape
def _passages(owner: bool, default: Default, shape: Shape) -> CompiledStatement:
    """The statement of `readback` for passages. One event of the audit log lists those that are read."""
    found = _candidates()
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
            found.c.score,
            found.c.position,
        )
        .join(found, found.c.id == Passage.id)
        .join(Source, Source.id == Passage.source_id)
        .join(App, App.id == Passage.app_id)
        .where(
            readable_by(Caller.anyone(owner=owner, default=default), Passage),
            predicate(shape, Passage),
            _says_literally(Passage.content),
        )
        .order_by(found.c.position)
        .limit(bindparam("limit", type_=Integer))
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )
    statement = select(readable).add_cte(audit_log.inserted(readable, if_none=False)).order_by(readable.c.position)
    return CompiledStatement(statement, kept=is_usual(shape))


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, shape: Shape) -> CompiledStatement:
    """The statement of `readback`. `as_then`: uses the memories as of the time that is bound as `as_of`."""
    caller = Caller.anyone(owner=owner, default=default)
    was = as_of_state(caller) if as_then else None
    source, may_find = findable(caller, was)
    found = _candidates()
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
            found.c.score,
            found.c.position,
        )
        .select_from(source)
        .join(found, found.c.id == Memory.id)
        .join(App, App.id == Memory.app_id)
        .where(may_find, predicate(shape), _says_literally(content))
        .order_by(found.c.position)
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
    return CompiledStatement(statement, kept=is_usual(shape))
