"""Reads candidates back from Postgres. Removes those that the caller may not read, and logs those that are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Text,
    and_,
    bindparam,
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
from openmemory.audit.audit_log import AuditAction
from openmemory.content_policy.secrets import redacted
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.index.sync.entries import array_of
from openmemory.memories.models import Category, Memory, MemoryCategory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.search.as_of import as_of_state, findable
from openmemory.search.filter_sql import Shape, by_shape, filtering, is_usual, predicate
from openmemory.search.schemas import SearchQuery

_IDS: Any = ARRAY(PgUUID(as_uuid=True))


def parameters(query: SearchQuery) -> dict[str, Any]:
    """The parameters of `conditions`. None turns a condition off, so that one statement serves every combination."""
    return {
        "namespaces": list(query.namespaces) or None,
        "threads": list(query.threads) or None,
        "kinds": list(query.kinds) or None,
        "app_ids": list(query.app_ids) or None,
        "categories": list(query.categories) or None,
        "created_from": query.created_from,
        "created_to": query.created_to,
        **filtering(query.filter).binds,
    }


def conditions(shape: Shape) -> ColumnElement[bool]:
    """The conditions of a query with a filter of this shape, other than its words."""
    filed = (
        select(MemoryCategory.memory_id)
        .join(Category, Category.id == MemoryCategory.category_id)
        .where(MemoryCategory.memory_id == Memory.id, Category.name == func.any(_texts("categories")))
        .correlate(Memory)
        .exists()
    )
    return and_(
        or_(_texts("namespaces").is_(None), Memory.namespace == func.any(_texts("namespaces"))),
        or_(_texts("threads").is_(None), Memory.thread_id == func.any(_texts("threads"))),
        or_(_texts("kinds").is_(None), Memory.kind == func.any(_texts("kinds"))),
        or_(bindparam("app_ids", type_=_IDS).is_(None), Memory.app_id == func.any(bindparam("app_ids", type_=_IDS))),
        or_(_texts("categories").is_(None), filed),
        or_(_time("created_from").is_(None), Memory.created_at >= _time("created_from")),
        or_(_time("created_to").is_(None), Memory.created_at <= _time("created_to")),
        predicate(shape),
    )


def _texts(name: str) -> Any:
    return bindparam(name, type_=ARRAY(Text))


def _time(name: str) -> Any:
    return bindparam(name, type_=Memory.created_at.type)


async def readable(tx: Tx, caller: Caller, ids: Sequence[UUID]) -> set[UUID]:
    """Those of the memories that the caller may read now. Logs nothing, because none of them is shown."""
    rows = await _may_read(caller.owner, caller.default).rows(tx, {**caller.parameters, "ids": list(ids)})
    return {id_ for (id_,) in rows}


@cache
def _may_read(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    asked = Memory.id == func.any(bindparam("ids", type_=_IDS))
    return CompiledStatement(select(Memory.id).where(asked, readable_by(caller, Memory)), plain=True)


async def readback(
    tx: Tx, caller: Caller, query: SearchQuery, candidates: Sequence[tuple[UUID, float]], *, limit: int, method: str
) -> list[Any]:
    """The best `limit` of the candidates (id and score, best first) that the caller may read, as rows, in order.

    One statement returns the rows that match the query's filters and `readable_by`, writes an access log entry for each
    of them, and writes an event of the audit log. The entries never contain a secret from the query.
    """
    shape = filtering(query.filter).shape
    return await _statement(caller.owner, caller.default, query.as_of is not None, shape).rows(
        tx,
        {
            **caller.parameters,
            **parameters(query),
            "as_of": query.as_of,
            "ids": array_of(id_ for id_, _ in candidates),
            "scores": f"{{{','.join([str(score) for _, score in candidates])}}}",
            "limit": limit,
            "query": redacted(query.text),
            "method": method,
            **access_log.parameters(caller, AccessType.SEARCH),
            **audit_log.parameters(caller, AuditAction.MEMORY_SEARCH, detail={"method": method}),
        },
    )


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, shape: Shape) -> CompiledStatement:
    """The statement of `readback`. `as_then`: uses the memories as of the time that is bound as `as_of`."""
    caller = Caller.anyone(owner=owner, default=default)
    was = as_of_state(owner) if as_then else None
    source, may_find = findable(caller, was)
    found = (
        func.unnest(
            cast(bindparam("ids", type_=Text), _IDS), cast(bindparam("scores", type_=Text), ARRAY(DOUBLE_PRECISION))
        )
        .table_valued(
            column("id", PgUUID(as_uuid=True)), column("score", Float), with_ordinality="position", name="candidate"
        )
        .render_derived()
    )
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
            App.name.label("app_name"),
            CATEGORY_NAMES.label("categories"),
            found.c.score,
            found.c.position,
        )
        .select_from(source)
        .join(found, found.c.id == Memory.id)
        .join(App, App.id == Memory.app_id)
        .where(may_find, conditions(shape))
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
    logs = access_log.inserted(readable, metadata, _texts("namespaces")), audit_log.inserted(readable)
    statement = select(readable).add_cte(*logs).order_by(readable.c.position)
    return CompiledStatement(statement, kept=is_usual(shape))
