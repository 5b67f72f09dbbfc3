"""The compiled statements of lists. Each is built once per set of criteria and uses covering indexes.

Table rows are read only for the memories of a page, and for long texts in a text search.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Select,
    Text,
    Uuid,
    bindparam,
    case,
    column,
    func,
    literal_column,
    select,
    true,
    union_all,
)

from openmemory.access.models import App
from openmemory.access.readable import hidden_from, is_set_aside
from openmemory.audit import access_log, audit_log
from openmemory.database.compiled import CompiledStatement
from openmemory.database.id_partitions import IdPartition
from openmemory.memories import repository
from openmemory.memories.fields import COLUMNS
from openmemory.memories.listing.criteria import ListCriteria, holds, is_assigned
from openmemory.memories.models import BEGINNING, IS_ACTIVE, SHORT, Category, Memory, MemoryCategory
from openmemory.memories.state import State

SORTABLE: dict[str, Any] = {
    "app_name": App.name,
    **{name: getattr(Memory, one.name) for one in COLUMNS for name in one.sortable},
}
"""Sortable columns, by the name that requests use."""

_IS_SHORT = func.octet_length(Memory.content) <= literal_column(str(SHORT))
_IS_LONG = func.octet_length(Memory.content) > literal_column(str(SHORT))
_IS_DELETED = Memory.state == literal_column("'deleted'::memory_state")
# Exactly the conditions of the partial trigram indexes.
_INDEXED: tuple[tuple[ColumnElement[bool], set[State]], ...] = (
    (IS_ACTIVE, {State.ACTIVE}),
    (literal_column("memories.state IN ('paused', 'archived')"), {State.PAUSED, State.ARCHIVED}),
)
_BEGINNING = f'"left"(memories.content, {BEGINNING})'
_ONE: Any = literal_column("1")
_OFFSET, _LIMIT, _ENOUGH = (bindparam(name, type_=Integer) for name in ("offset", "limit", "enough"))
_FEW = bindparam("few", type_=Integer)
_IDS: Any = bindparam("ids", type_=ARRAY(Uuid))
_kept = lru_cache(maxsize=512)


class Part(StrEnum):
    """The half of a user's texts that a statement scans. Two parallel scans of one half each take half the time."""

    LOWER = "~<~"
    """The texts that sort before the text `middle` by bytes."""
    UPPER = "~>=~"
    """The other texts."""


@_kept
def total(asked: ListCriteria, partition: IdPartition | None) -> CompiledStatement:
    """The number of matches, without a text filter. In one id partition if `asked.only_by_category`."""
    if partition is not None:
        return CompiledStatement(select(func.count()).select_from(_assigned(asked, partition)), plain=True)
    quick = _quick_total(asked)
    return CompiledStatement(select(func.count()).where(asked.matching()) if quick is None else quick, plain=True)


@_kept
def ids(asked: ListCriteria, *, backwards: bool) -> CompiledStatement:
    """The ids of a range of the matches, in list order or reversed. Binds `offset`, `limit` and their sum `enough`."""
    if asked.sort in ("memory", "content"):
        return CompiledStatement(_by_text(asked, backwards), plain=True)
    query = _matches(asked, Memory.id).order_by(*_sorted(asked.sort, asked.descending, backwards=backwards))
    return CompiledStatement(query.limit(_LIMIT).offset(_OFFSET), plain=True)


@_kept
def sample(asked: ListCriteria) -> CompiledStatement:
    """The number of the newest `sample` memories that contain the text, and the median of all sampled texts."""
    newest = (
        select(Memory.folded, Memory.content)
        .where(asked.readable)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(bindparam("sample", type_=Integer))
        .subquery("newest")
    )
    bytewise = newest.c.content.collate("C")
    middle = func.percentile_disc(literal_column("0.5")).within_group(bytewise)
    return CompiledStatement(
        select(func.count().filter(_contains(newest.c.folded)), middle).select_from(newest), plain=True
    )


@_kept
def counted(asked: ListCriteria, part: Part) -> CompiledStatement:
    """The number of matches in one half of the texts."""
    return CompiledStatement(
        select(func.count()).select_from(_looked_through(asked, part, _ONE.label("one"))), plain=True
    )


@_kept
def assignments(asked: ListCriteria, most: int) -> CompiledStatement:
    """The number of assignments to the requested categories. Stops counting at `most` + 1."""
    query = select(_ONE).where(is_assigned(one="category_id" in asked.filters)).limit(literal_column(str(most + 1)))
    return CompiledStatement(select(func.count()).select_from(query.subquery()), plain=True)


@_kept
def hits(asked: ListCriteria, part: Part | None, *, filed_first: bool = False) -> CompiledStatement:
    """The number of matches, and all their ids if there are at most `few`.

    With `part=None` and `filed_first`, the memories of the categories are read one by one. With `part=None` alone,
    trigram indexes of the memories that are not deleted are used. With a `part`, every text of that half is scanned.
    """
    if filed_first:
        found = _matches(asked, Memory.id).subquery("found")
    elif part is None:
        which = asked.matching(text=False)
        indexed = [condition for condition, states in _INDEXED if states & set(asked.states)]
        parts = [select(Memory.id).where(which, condition, holds()) for condition in indexed]
        if State.DELETED in asked.states:
            parts += [_matches(asked, Memory.id).where(_IS_DELETED, length) for length in (_IS_SHORT, _IS_LONG)]
        found = union_all(*parts).subquery("found")
    else:
        found = _looked_through(asked, part, Memory.id)
    few = case((func.count() <= _FEW, func.array_agg(found.c.id)))
    return CompiledStatement(select(func.count(), few).select_from(found), plain=True)


@_kept
def in_order(sort: str, *, descending: bool) -> CompiledStatement:
    """A range of `ids`, sorted. Binds `offset` and `limit`."""
    query = select(Memory.id).where(Memory.id == func.any(_IDS))
    if sort == "app_name":
        query = query.join(App, App.id == Memory.app_id)
    query = query.order_by(*_sorted(sort, descending, backwards=False)).limit(_LIMIT).offset(_OFFSET)
    return CompiledStatement(query, plain=True)


@_kept
def sizes(asked: ListCriteria, part: Part | IdPartition | None) -> CompiledStatement:
    """The number of matches per app: in one half of the texts, or in all memories without a text filter.

    In one id partition if `asked.only_by_category`.
    """
    if isinstance(part, Part):
        found = _looked_through(asked, part, Memory.app_id)
    elif part is not None:
        found = _assigned(asked, part)
    else:
        found = select(Memory.app_id).where(asked.matching()).subquery("found")
    return CompiledStatement(select(found.c.app_id, func.count()).group_by(found.c.app_id), plain=True)


@_kept
def apps_in_order(*, descending: bool) -> CompiledStatement:
    """The apps `ids`, sorted by name."""
    name = App.name.desc() if descending else App.name.asc()
    return CompiledStatement(select(App.id).where(App.id == func.any(_IDS)).order_by(name), plain=True)


@_kept
def of_apps(asked: ListCriteria, *, backwards: bool) -> CompiledStatement:
    """For each app, the ids of `takes` matches after `skips` others, newest first. With `backwards`, which is for one
    app only, they are counted and sorted from the oldest. Binds the arrays `apps`, `skips`, `takes`."""
    part = (
        func.unnest(
            bindparam("apps", type_=ARRAY(Uuid)),
            bindparam("skips", type_=ARRAY(Integer)),
            bindparam("takes", type_=ARRAY(Integer)),
        )
        .table_valued("app_id", column("skip", Integer), column("take", Integer), with_ordinality="place")
        .render_derived("part")
    )
    of_app = (
        _matches(asked, Memory.id, Memory.created_at)
        .where(Memory.app_id == part.c.app_id)
        .order_by(*_by_age(Memory, backwards))
        .limit(part.c.take)
        .offset(part.c.skip)
        .lateral("of_app")
    )
    order = part.c.place, *_by_age(of_app.c, backwards)
    return CompiledStatement(select(of_app.c.id).select_from(part).join(of_app, true()).order_by(*order), plain=True)


@_kept
def shown(asked: ListCriteria, *, hashes: bool) -> CompiledStatement:
    """The complete memories `ids`, in order, if they still match. Logs the read in the same statement.

    `hashes`: the log also records the hash of each text.
    """
    place = func.unnest(_IDS).table_valued("id", with_ordinality="place", name="wanted").render_derived()
    readable = (
        repository.whole()
        .add_columns(place.c.place)
        .join(place, place.c.id == Memory.id)
        .where(asked.matching(text=False))
        .order_by(place.c.place)
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )
    noted: Any = literal_column("'{}'::jsonb")
    if hashes:
        noted = func.jsonb_build_object(literal_column("'hash'"), readable.c.hash)
    logs = access_log.inserted(readable, noted), audit_log.inserted(readable)
    return CompiledStatement(select(readable).add_cte(*logs).order_by(readable.c.place), plain=True)


CATEGORIES_NAMED = CompiledStatement(
    select(Category.id).where(Category.name == func.any(bindparam("names", type_=ARRAY(Text)))), plain=True
)
"""The ids of the categories with these `names`."""


def _by_text(asked: ListCriteria, backwards: bool) -> Select[Any]:
    """The ids sorted by text. Short and long texts are read from their own index and merged."""
    down = asked.descending is not backwards
    tie = Memory.id.desc() if down else Memory.id.asc()
    parts = []
    for length, first in ((_IS_SHORT, ()), (_IS_LONG, (_bytewise(_BEGINNING, down),))):
        order = *first, _bytewise("memories.content", down), tie
        ordered = _matches(asked, Memory.id, Memory.content).where(length).order_by(*order).limit(_ENOUGH)
        parts.append(select(*ordered.subquery().c))
    merged = union_all(*parts).subquery("merged")
    order = _bytewise("merged.content", down), merged.c.id.desc() if down else merged.c.id.asc()
    return select(merged.c.id).order_by(*order).limit(_LIMIT).offset(_OFFSET)


def _matches(asked: ListCriteria, *columns: Any) -> Select[Any]:
    """Columns of all matches. A text filter is checked on each row, without the trigram index."""
    query = select(*columns).select_from(Memory).where(asked.matching(text=False))
    return query.where(_contains(Memory.folded)) if "text" in asked.filters else query


def _looked_through(asked: ListCriteria, part: Part, of: Any) -> Any:
    """One column of all matches in one half of the texts, from the index that stores the texts."""
    short = literal_column("memories.content").bool_op(part.value)(bindparam("middle", type_=Text))
    beginning = func.left(bindparam("middle", type_=Text), literal_column(str(BEGINNING)))
    long = literal_column(_BEGINNING).bool_op(part.value)(beginning)
    both = (_matches(asked, of).where(_IS_SHORT, short), _matches(asked, of).where(_IS_LONG, long))
    return union_all(*both).subquery("found")


def _assigned(asked: ListCriteria, partition: IdPartition) -> Any:
    """Id and app of the visible memories in the categories. A memory in several categories comes once."""
    one = "category_id" in asked.filters
    hidden = select(Memory.id).where(hidden_from(asked.caller, Memory, states=asked.states), partition.of(Memory.id))
    columns = MemoryCategory.memory_id, MemoryCategory.app_id
    query = select(*columns).where(is_assigned(one=one), partition.of(MemoryCategory.memory_id))
    each = (query if one else query.distinct()).subquery("each")
    return select(each).where(each.c.memory_id.not_in(hidden)).subquery("found")


def _quick_total(asked: ListCriteria) -> Select[Any] | None:
    """The number of matches, computed from small indexes of the few memories that are inactive or may be hidden.

    None if there are filters besides states, or if many memories may be hidden.
    """
    if asked.filters or not asked.reads_most:
        return None
    mine = select(func.count()).where(Memory.user_id == bindparam("caller_user_id", type_=Uuid))
    which = asked.matching()
    active = mine.where(IS_ACTIVE)
    also = mine.where(is_set_aside(Memory), which, ~IS_ACTIVE)
    less = mine.where(is_set_aside(Memory), IS_ACTIVE, which.is_not(literal_column("true")))
    return select(active.scalar_subquery() + also.scalar_subquery() - less.scalar_subquery())


def _by_age(rows: Any, backwards: bool) -> tuple[Any, ...]:
    """Sorts newest first, or oldest first if read backwards."""
    columns = rows.created_at, rows.id
    return tuple(column.asc() if backwards else column.desc() for column in columns)


def _sorted(sort: str, descending: bool, *, backwards: bool) -> list[Any]:
    key: ColumnElement[Any] = SORTABLE[sort]
    down = descending is not backwards
    if sort == "app_name":
        newest = Memory.created_at.desc(), Memory.id.desc()
        return [key.desc() if down else key.asc(), *newest]
    first: Any = key.desc() if down else key.asc()
    if sort in ("memory", "content"):
        first = _bytewise("memories.content", down)
    elif sort in ("importance", "archived_at", "deleted_at", "expires_at"):
        first = first.nulls_first() if backwards else first.nulls_last()
    return [first, Memory.id.desc() if down else Memory.id.asc()]


def _bytewise(expression: str, down: bool) -> ColumnElement[Any]:
    """Sorts texts by bytes, like OpenMemory's SQLite, independent of the collation of the database."""
    return literal_column(f"{expression} USING {'~>~' if down else '~<~'}")


def _contains(folded: Any) -> ColumnElement[bool]:
    """Matches texts that contain the search text, ignoring case. Suited to a scan of many texts."""
    matches: ColumnElement[bool] = folded.like(func.lower(bindparam("asked_text", type_=Text)))
    return matches
