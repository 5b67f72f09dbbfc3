"""The statements of lists: made once for what is asked, and asked of indexes that hold all they look at.

No row of the table is read but those of a page, and those of long texts where a part of the text is looked for.
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
from openmemory.access.readable import hidden_from, is_aside
from openmemory.audit import access_log, audit_log
from openmemory.database.compiled import Prepared
from openmemory.database.id_partitions import Half
from openmemory.memories import repository
from openmemory.memories.listing.criteria import Asked, filed, holds
from openmemory.memories.models import BEGINNING, IS_ACTIVE, SHORT, Category, Memory, MemoryCategory, State

SORTABLE: dict[str, Any] = {
    "created_at": Memory.created_at, "updated_at": Memory.updated_at, "memory": Memory.content,
    "content": Memory.content, "app_name": App.name, "state": Memory.state, "namespace": Memory.namespace,
    "kind": Memory.kind, "importance": Memory.importance, "archived_at": Memory.archived_at,
    "deleted_at": Memory.deleted_at, "id": Memory.id, "app_id": Memory.app_id, "expires_at": Memory.expires_at,
}  # fmt: skip
"""Names by which lists may be sorted."""

_IS_SHORT = func.octet_length(Memory.content) <= literal_column(str(SHORT))
_IS_LONG = func.octet_length(Memory.content) > literal_column(str(SHORT))
_IS_DELETED = Memory.state == literal_column("'deleted'::memory_state")
# As the indexes of parts have it in their conditions.
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
    """Which of a user's texts a statement looks through: two that look through half of them each take half as long."""

    LOWER = "~<~"
    """Those whose bytes come before those of the text `middle`."""
    UPPER = "~>=~"
    """The others."""


@_kept
def total(asked: Asked, half: Half | None) -> Prepared:
    """How many match; not for a text. Of a half of all ids if `asked.only_filed`."""
    if half is not None:
        return Prepared(select(func.count()).select_from(_filed(asked, half)), plain=True)
    quick = _quick_total(asked)
    return Prepared(select(func.count()).where(asked.matching()) if quick is None else quick, plain=True)


@_kept
def ids(asked: Asked, *, backwards: bool) -> Prepared:
    """The ids of some that match, in their order or against it. Binds `offset`, `limit` and their sum `enough`."""
    if asked.sort in ("memory", "content"):
        return Prepared(_by_text(asked, backwards), plain=True)
    query = _matches(asked, Memory.id).order_by(*_sorted(asked.sort, asked.descending, backwards=backwards))
    return Prepared(query.limit(_LIMIT).offset(_OFFSET), plain=True)


@_kept
def sample(asked: Asked) -> Prepared:
    """Of the newest `sample` memories how many hold the text, and the text in the middle of theirs."""
    newest = (
        select(Memory.folded, Memory.content)
        .where(asked.readable)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(bindparam("sample", type_=Integer))
        .subquery("newest")
    )
    bytewise = newest.c.content.collate("C")
    middle = func.percentile_disc(literal_column("0.5")).within_group(bytewise)
    return Prepared(select(func.count().filter(_contains(newest.c.folded)), middle).select_from(newest), plain=True)


@_kept
def counted(asked: Asked, part: Part) -> Prepared:
    """How many of a part of all texts match."""
    return Prepared(select(func.count()).select_from(_looked_through(asked, part, _ONE.label("one"))), plain=True)


@_kept
def filings(asked: Asked, most: int) -> Prepared:
    """How many there are under the categories that are asked for; of more than `most`, one more."""
    query = select(_ONE).where(filed(one="category_id" in asked.filters)).limit(literal_column(str(most + 1)))
    return Prepared(select(func.count()).select_from(query.subquery()), plain=True)


@_kept
def hits(asked: Asked, part: Part | None, *, filed_first: bool = False) -> Prepared:
    """How many match, and the ids of all if these are at most `few`.

    None for `part`: three letters in a row are looked up in indexes of what is not deleted; if little is `filed_first`,
    that is read. Else every text of a part is looked through.
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
    return Prepared(select(func.count(), few).select_from(found), plain=True)


@_kept
def in_order(sort: str, *, descending: bool) -> Prepared:
    """Some of the `ids` in their order. Binds `offset` and `limit`."""
    query = select(Memory.id).where(Memory.id == func.any(_IDS))
    if sort == "app_name":
        query = query.join(App, App.id == Memory.app_id)
    query = query.order_by(*_sorted(sort, descending, backwards=False)).limit(_LIMIT).offset(_OFFSET)
    return Prepared(query, plain=True)


@_kept
def sizes(asked: Asked, part: Part | Half | None) -> Prepared:
    """The apps that have something that matches, and how much; of a part of all texts, or of all without a text.

    Of a half of all ids if `asked.only_filed`.
    """
    if isinstance(part, Part):
        found = _looked_through(asked, part, Memory.app_id)
    elif part is not None:
        found = _filed(asked, part)
    else:
        found = select(Memory.app_id).where(asked.matching()).subquery("found")
    return Prepared(select(found.c.app_id, func.count()).group_by(found.c.app_id), plain=True)


@_kept
def apps_in_order(*, descending: bool) -> Prepared:
    """The apps `ids` in the order of their names."""
    name = App.name.desc() if descending else App.name.asc()
    return Prepared(select(App.id).where(App.id == func.any(_IDS)).order_by(name), plain=True)


@_kept
def of_apps(asked: Asked, *, backwards: bool) -> Prepared:
    """The ids of so many of each app after so many others, newest first; oldest first and counted from there if it is
    read `backwards`, which is for one app. Binds the arrays `apps`, `skips`, `takes`."""
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
    return Prepared(select(of_app.c.id).select_from(part).join(of_app, true()).order_by(*order), plain=True)


@_kept
def shown(asked: Asked, *, hashes: bool) -> Prepared:
    """The memories `ids` whole, in their order, as far as they still match; and the log of it, in one statement.

    `hashes`: of each access the log notes that of the text.
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
    return Prepared(select(readable).add_cte(*logs).order_by(readable.c.place), plain=True)


CATEGORIES_NAMED = Prepared(
    select(Category.id).where(Category.name == func.any(bindparam("names", type_=ARRAY(Text)))), plain=True
)
"""The categories of these `names`."""


def _by_text(asked: Asked, backwards: bool) -> Select[Any]:
    """The ids in the order of the texts: those of short and of long ones merged."""
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


def _matches(asked: Asked, *columns: Any) -> Select[Any]:
    """Columns of all that match, where texts are looked at one after the other."""
    query = select(*columns).select_from(Memory).where(asked.matching(text=False))
    return query.where(_contains(Memory.folded)) if "text" in asked.filters else query


def _looked_through(asked: Asked, part: Part, of: Any) -> Any:
    """One column of all of a part that match, from the index that holds the texts."""
    short = literal_column("memories.content").bool_op(part.value)(bindparam("middle", type_=Text))
    beginning = func.left(bindparam("middle", type_=Text), literal_column(str(BEGINNING)))
    long = literal_column(_BEGINNING).bool_op(part.value)(beginning)
    halves = (_matches(asked, of).where(_IS_SHORT, short), _matches(asked, of).where(_IS_LONG, long))
    return union_all(*halves).subquery("found")


def _filed(asked: Asked, half: Half) -> Any:
    """Id and app of what is filed under the categories, and not hidden: a memory of several comes once."""
    one = "category_id" in asked.filters
    hidden = select(Memory.id).where(hidden_from(asked.caller, Memory, states=asked.states), half.of(Memory.id))
    columns = MemoryCategory.memory_id, MemoryCategory.app_id
    query = select(*columns).where(filed(one=one), half.of(MemoryCategory.memory_id))
    each = (query if one else query.distinct()).subquery("each")
    return select(each).where(each.c.memory_id.not_in(hidden)).subquery("found")


def _quick_total(asked: Asked) -> Select[Any] | None:
    """How many match, by small indexes: of what may not be read, or not as it is, there is little.

    None if anything is asked for besides states, or if there may be much that is hidden.
    """
    if asked.filters or not asked.reads_most:
        return None
    mine = select(func.count()).where(Memory.user_id == bindparam("caller_user_id", type_=Uuid))
    which = asked.matching()
    active = mine.where(IS_ACTIVE)
    also = mine.where(is_aside(Memory), which, ~IS_ACTIVE)
    less = mine.where(is_aside(Memory), IS_ACTIVE, which.is_not(literal_column("true")))
    return select(active.scalar_subquery() + also.scalar_subquery() - less.scalar_subquery())


def _by_age(rows: Any, backwards: bool) -> tuple[Any, ...]:
    """Newest first; oldest first if read backwards."""
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
    """Texts in the order of their bytes, as OpenMemory's SQLite sorted them, whatever the language of the database."""
    return literal_column(f"{expression} USING {'~>~' if down else '~<~'}")


def _contains(folded: Any) -> ColumnElement[bool]:
    """Whether a text holds the part asked for, in any case: as many are looked through, one after the other."""
    matches: ColumnElement[bool] = folded.like(func.lower(bindparam("asked_text", type_=Text)))
    return matches
