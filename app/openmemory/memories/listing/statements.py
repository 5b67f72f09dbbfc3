"""The compiled statements of lists. Each is built once per set of criteria."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Select,
    Uuid,
    bindparam,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from openmemory.access.models import App
from openmemory.audit import access_log, audit_log
from openmemory.database.compiled import CompiledStatement
from openmemory.memories import repository
from openmemory.memories.fields import COLUMNS
from openmemory.memories.listing.criteria import ListCriteria
from openmemory.memories.models import BEGINNING, SHORT, Memory

SORTABLE: dict[str, Any] = {
    "app_name": App.name,
    **{name: getattr(Memory, one.name) for one in COLUMNS for name in one.sortable},
}
"""Sortable columns, by the name that requests use."""

_LENGTH: Any = func.octet_length(Memory.content)
_SHORT: Any = literal_column(str(SHORT))
_BEGINNING = f'"left"(memories.content, {BEGINNING})'
_OFFSET, _LIMIT, _LAST = (bindparam(name, type_=Integer) for name in ("offset", "limit", "last"))
_BY_TEXT = ("memory", "content")
_cached = lru_cache(maxsize=512)


def in_index_order(criteria: ListCriteria) -> bool:
    """Returns True if an index has the order of the list, and the page is read without most of the other matches."""
    return criteria.sort in _BY_TEXT or (criteria.sort == "created_at" and criteria.owner and not criteria.filters)


@_cached
def total(criteria: ListCriteria) -> CompiledStatement:
    """The number of matches."""
    return CompiledStatement(select(func.count()).where(criteria.matching()), plain=True)


@_cached
def ids(criteria: ListCriteria) -> CompiledStatement:
    """The ids of a range of the matches `in_index_order`. Binds `offset`, `limit` and their sum `last`."""
    if criteria.sort in _BY_TEXT:
        query = _by_text(criteria)
    else:
        order = (_sorted_by(column, criteria.descending) for column in (Memory.created_at, Memory.id))
        query = select(Memory.id).where(criteria.matching()).order_by(*order)
    return CompiledStatement(query.limit(_LIMIT).offset(_OFFSET), plain=True)


@_cached
def total_and_ids(criteria: ListCriteria) -> CompiledStatement:
    """The ids of a range of the matches in any order, as `with_total`. Within an app the newest memories come first."""
    key = SORTABLE[criteria.sort].label("key")
    matches = select(Memory.id, Memory.created_at, key).where(criteria.matching())
    if criteria.sort == "app_name":
        matches = matches.join(App, App.id == Memory.app_id)

    def order(rows: Any) -> tuple[Any, ...]:
        first = _sorted_by(rows.key, criteria.descending).nulls_last()
        newest = rows.created_at.desc(), rows.id.desc()
        return (first, *newest) if criteria.sort == "app_name" else (first, _sorted_by(rows.id, criteria.descending))

    return CompiledStatement(with_total(matches, order, "id"), plain=True)


def with_total(matches: Select[Any], order: Callable[[Any], Sequence[Any]], *columns: str) -> Select[Any]:
    """These columns of a range of the matches, after their total number. Binds `offset` and `limit`.

    One row with nulls if the range is empty.
    """
    matching = matches.cte("matching").prefix_with("MATERIALIZED")
    whole = select(func.count().label("total")).select_from(matching).subquery("whole")
    page = select(matching).order_by(*order(matching.c)).limit(_LIMIT).offset(_OFFSET).subquery("page")
    rows = select(whole.c.total, *(page.c[column] for column in columns))
    return rows.select_from(whole.outerjoin(page, true())).order_by(*order(page.c))


@_cached
def records(criteria: ListCriteria, *, hashes: bool) -> CompiledStatement:
    """The complete memories `ids`, in order, if they still match. Logs the read in the same statement.

    `hashes`: the log also records the hash of each text.
    """
    memory_ids: Any = bindparam("ids", type_=ARRAY(Uuid))
    place = func.unnest(memory_ids).table_valued("id", with_ordinality="place", name="wanted").render_derived()
    readable = (
        repository.whole()
        .add_columns(place.c.place)
        .join(place, place.c.id == Memory.id)
        .where(criteria.matching(text=False))
        .order_by(place.c.place)
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )
    detail: Any = literal_column("'{}'::jsonb")
    if hashes:
        detail = func.jsonb_build_object(literal_column("'hash'"), readable.c.hash)
    logs = access_log.inserted(readable, detail), audit_log.inserted(readable)
    return CompiledStatement(select(readable).add_cte(*logs).order_by(readable.c.place), plain=True)


def _by_text(criteria: ListCriteria) -> Select[Any]:
    """The ids sorted by text. Short and long texts are read from their own index and merged."""
    down = criteria.descending
    parts = []
    for length, first in ((_LENGTH <= _SHORT, ()), (_LENGTH > _SHORT, (_bytewise(_BEGINNING, down),))):
        matches = select(Memory.id, Memory.content).where(criteria.matching(), length)
        query = matches.order_by(*first, _bytewise("memories.content", down), _sorted_by(Memory.id, down))
        parts.append(select(*query.limit(_LAST).subquery().c))
    merged = union_all(*parts).subquery("merged")
    return select(merged.c.id).order_by(_bytewise("merged.content", down), _sorted_by(merged.c.id, down))


def _sorted_by(column: Any, down: bool) -> Any:
    return column.desc() if down else column.asc()


def _bytewise(expression: str, down: bool) -> ColumnElement[Any]:
    """Sorts texts by bytes, like OpenMemory's SQLite, independent of the collation of the database."""
    return literal_column(f"{expression} USING {'~>~' if down else '~<~'}")
