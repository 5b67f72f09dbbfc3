"""Pages of lists: which memories are on one, and how many there are in all.

Both are asked of indexes that hold what the filters and `readable_by` look at, so that no row is read but those of the
page; a page in the second half is read from the end. Then its rows are fetched by their ids.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    Integer,
    Select,
    Uuid,
    bindparam,
    case,
    column,
    func,
    literal_column,
    select,
    text,
    true,
    union_all,
)

from app.access.caller import Caller
from app.access.models import App
from app.access.readable import hidden_from, is_aside, readable_by, reads_most
from app.database import Tx
from app.errors import Invalid
from app.memories import repository
from app.memories.models import BEGINNING, SHORT, Category, Memory, MemoryCategory, State
from app.memories.schemas import MemoryQuery, MemoryRecord

SORTABLE: dict[str, Any] = {
    "created_at": Memory.created_at, "updated_at": Memory.updated_at, "memory": Memory.content,
    "content": Memory.content, "app_name": App.name, "state": Memory.state, "namespace": Memory.namespace,
    "kind": Memory.kind, "importance": Memory.importance, "archived_at": Memory.archived_at,
    "deleted_at": Memory.deleted_at, "id": Memory.id, "app_id": Memory.app_id, "expires_at": Memory.expires_at,
}  # fmt: skip
"""Names by which lists may be sorted."""

FEW = 2_000
"""So many hits of a text are sorted as they are; of more, most of the memories near the page are hits themselves."""

SAMPLE = 400
"""So many of the newest memories tell how common a text is."""

COMMON = 0.1
"""A share of memories that hold a text: of so many, a page is found by leafing through them all."""

# A list has as many plans as filters and values, so it is planned for these. Its sorts are of ids and stay in memory.
PLANNED = text("""
SELECT set_config('plan_cache_mode', 'force_custom_plan', true), set_config('work_mem', '16MB', true)
""")

_IS_SHORT = func.octet_length(Memory.content) <= literal_column(str(SHORT))
_IS_LONG = func.octet_length(Memory.content) > literal_column(str(SHORT))
_IS_ACTIVE = Memory.state == literal_column("'active'::memory_state")
_IS_DELETED = Memory.state == literal_column("'deleted'::memory_state")
# As the indexes of parts have it in their conditions.
_INDEXED: tuple[tuple[ColumnElement[bool], set[State]], ...] = (
    (_IS_ACTIVE, {State.ACTIVE}),
    (literal_column("memories.state IN ('paused', 'archived')"), {State.PAUSED, State.ARCHIVED}),
)
_BEGINNING = f'"left"(memories.content, {BEGINNING})'


class Slice(NamedTuple):
    """Which of the matches, in their order; `backwards`: counted, and read, from the end."""

    offset: int
    limit: int
    backwards: bool = False

    def of(self, total: int) -> Slice:
        """The same of so many, from the nearer end."""
        if self.offset <= total // 2:
            return self
        limit = max(0, min(self.limit, total - self.offset))
        return Slice(total - self.offset - limit, limit, backwards=True)

    def within(self, before: int, size: int) -> Slice:
        """What of it lies in a group of so many after so many others; nothing does if its limit is below one."""
        skip = max(0, self.offset - before)
        return Slice(skip, min(size - skip, self.offset + self.limit - before - skip))


async def page(tx: Tx, caller: Caller, query: MemoryQuery, wanted: Slice) -> tuple[list[MemoryRecord], int]:
    """Some of the memories that match and that the caller may read, and how many match in all.

    Equal keys are ordered by their ids, and by their age, newest first, within an app.

    Raises:
        Invalid: `sort` names no column that can be sorted by.
    """
    if query.sort not in SORTABLE:
        raise Invalid("sort_column", f"must be one of {', '.join(SORTABLE)}", hint="Invalid sort column")
    await tx.execute(PLANNED)
    if query.categories and not query.category_ids:
        named = select(Category.id).where(Category.name == func.any(list(query.categories)))
        query = replace(query, categories=(), category_ids=tuple(await tx.scalars(named)))
        if not query.category_ids:
            return [], 0
    scope = _Scope(tx, caller, query)
    total = None
    if query.text and not (query.is_of("text") and await scope.is_common()):
        total, hits = await scope.hits()
        if hits is not None:
            return await rows(tx, caller, query, await scope.sorted(hits, wanted)), total
    if query.sort == "app_name":
        ids, total = await scope.by_app(wanted)
    else:
        total = await scope.total() if total is None else total
        ids = await scope.ids(wanted.of(total)) if wanted.offset < total else []
    return await rows(tx, caller, query, ids), total


async def total(tx: Tx, caller: Caller, query: MemoryQuery) -> int:
    """How many memories match that the caller may read; without regard to a text or to names of categories."""
    await tx.execute(PLANNED)
    return await _Scope(tx, caller, query).total()


async def rows(tx: Tx, caller: Caller, query: MemoryQuery, ids: list[UUID]) -> list[MemoryRecord]:
    """The memories of these ids in their order, as far as they still match."""
    if not ids:
        return []
    which = Memory.id == func.any(ids), repository.matching(caller, replace(query, text=None))
    found = await tx.execute(repository.whole().where(*which), caller.parameters)
    known = {row.id: repository.record(row) for row in found}
    return [known[id_] for id_ in ids if id_ in known]


class _Scope:
    """What one query looks through."""

    def __init__(self, tx: Tx, caller: Caller, query: MemoryQuery) -> None:
        self._tx = tx
        self._caller = caller
        self._query = query
        self._which = repository.matching(caller, replace(query, text=None))

    async def is_common(self) -> bool:
        """Whether many of the user's newest memories hold the text: then a page of it is found by leafing."""
        newest = (
            select(Memory.folded)
            .where(readable_by(self._caller, Memory, states=self._query.states))
            .order_by(Memory.created_at.desc(), Memory.id.desc())
            .limit(SAMPLE)
            .subquery("newest")
        )
        held = select(func.count()).select_from(newest).where(contains(self._query.text or "", newest.c.folded))
        return int(await self._tx.scalar(held, self._caller.parameters) or 0) >= COMMON * SAMPLE

    async def hits(self) -> tuple[int, list[UUID] | None]:
        """How many memories hold the text, and the ids of all of them, unless there are more than a few."""
        part = self._query.text or ""
        parts = [select(Memory.id).where(self._which, length, contains(part)) for length in (_IS_SHORT, _IS_LONG)]
        if re.search(r"\w{3}", part):
            # Three letters in a row are looked up in indexes of what is not deleted; else every text is looked through.
            indexed = [which for which, states in _INDEXED if states & set(self._query.states)]
            looked_up = [select(Memory.id).where(self._which, which, holds(part)) for which in indexed]
            rest = [query.where(_IS_DELETED) for query in parts] if State.DELETED in self._query.states else []
            parts = [*looked_up, *rest]
        found = union_all(*parts).subquery("found")
        total = func.count()
        query = select(total, case((total <= FEW, func.array_agg(found.c.id)))).select_from(found)
        count, ids = (await self._tx.execute(query, self._caller.parameters)).one()
        return count, ids if count else []

    async def sorted(self, hits: list[UUID], wanted: Slice) -> list[UUID]:
        """The wanted ones of these, in their order."""
        query = select(Memory.id).where(Memory.id == func.any(hits))
        if self._query.sort == "app_name":
            query = query.join(App, App.id == Memory.app_id)
        query = query.order_by(*_order(self._query, backwards=False)).limit(wanted.limit).offset(wanted.offset)
        return list(await self._tx.scalars(query))

    async def total(self) -> int:
        """How many match."""
        query = self._quick_total()
        if query is None:
            query = select(func.count()).select_from(self._counted(literal_column("1").label("one")))
        return int(await self._tx.scalar(query, self._caller.parameters) or 0)

    async def ids(self, wanted: Slice) -> list[UUID]:
        """The ids of the wanted ones, in their order."""
        if self._query.sort in ("memory", "content"):
            query = self._by_text(wanted)
        else:
            query = self._matches(Memory.id).order_by(*_order(self._query, backwards=wanted.backwards))
            query = query.limit(wanted.limit).offset(wanted.offset)
        found = list(await self._tx.scalars(query, self._caller.parameters))
        return found[::-1] if wanted.backwards else found

    async def by_app(self, wanted: Slice) -> tuple[list[UUID], int]:
        """The ids of the wanted ones in the order of their apps' names, and how many there are in all."""
        counted = self._counted(Memory.app_id)
        sizes = select(counted.c.app_id, func.count().label("size")).group_by(counted.c.app_id).subquery("sizes")
        direction = App.name.desc() if self._query.descending else App.name.asc()
        groups = select(sizes).join(App, App.id == sizes.c.app_id).order_by(direction)
        before, parts = 0, []
        for app_id, size in await self._tx.execute(groups, self._caller.parameters):
            part = wanted.within(before, size)
            if part.limit > 0:
                parts.append((app_id, part.offset, part.limit))
            before += size
        if not parts:
            return [], before
        query = self._of_apps()
        names = ("apps", "skips", "takes")
        values = dict(zip(names, map(list, zip(*parts, strict=True)), strict=True))
        found = await self._tx.scalars(query, {**self._caller.parameters, **values})
        return list(found), before

    def _of_apps(self) -> Select[Any]:
        """So many of each app after so many others, newest first."""
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
            self._matches(Memory.id, Memory.created_at)
            .where(Memory.app_id == part.c.app_id)
            .order_by(Memory.created_at.desc(), Memory.id.desc())
            .limit(part.c.take)
            .offset(part.c.skip)
            .lateral("of_app")
        )
        order = part.c.place, of_app.c.created_at.desc(), of_app.c.id.desc()
        return select(of_app.c.id).select_from(part).join(of_app, true()).order_by(*order)

    def _by_text(self, wanted: Slice) -> Select[Any]:
        """The ids in the order of the texts: those of short and of long ones merged."""
        down = self._query.descending is not wanted.backwards
        enough = wanted.offset + wanted.limit
        tie = Memory.id.desc() if down else Memory.id.asc()
        parts = []
        for length, first in ((_IS_SHORT, ()), (_IS_LONG, (_bytewise(_BEGINNING, down),))):
            order = *first, _bytewise("memories.content", down), tie
            ordered = self._matches(Memory.id, Memory.content).where(length).order_by(*order).limit(enough)
            parts.append(select(*ordered.subquery().c))
        merged = union_all(*parts).subquery("merged")
        order = _bytewise("merged.content", down), merged.c.id.desc() if down else merged.c.id.asc()
        return select(merged.c.id).order_by(*order).limit(wanted.limit).offset(wanted.offset)

    def _matches(self, *columns: Any) -> Select[Any]:
        """Columns of all that match."""
        query = select(*columns).select_from(Memory).where(self._which)
        return query.where(contains(self._query.text)) if self._query.text else query

    def _quick_total(self) -> Select[int] | None:
        """How many match, by small indexes: of what may not be read, or not as it is, there is little.

        None if anything is asked for besides states and categories, or if there may be much that is hidden.
        """
        query, caller = self._query, self._caller
        if not query.is_of("category_ids") or not reads_most(caller, query.states):
            return None
        if query.category_ids:
            hidden = select(Memory.id).where(hidden_from(caller, Memory, states=query.states))
            filed = select(MemoryCategory.memory_id).where(
                repository.filed_under(query.category_ids), MemoryCategory.memory_id.not_in(hidden)
            )
            each = filed if len(query.category_ids) == 1 else filed.distinct()
            return select(func.count()).select_from(each.subquery())
        mine = select(func.count()).where(Memory.user_id == bindparam("caller_user_id"))
        active = mine.where(_IS_ACTIVE)
        also = mine.where(is_aside(Memory), self._which, ~_IS_ACTIVE)
        less = mine.where(is_aside(Memory), _IS_ACTIVE, self._which.is_not(literal_column("true")))
        return select(active.scalar_subquery() + also.scalar_subquery() - less.scalar_subquery())

    def _counted(self, of: Any) -> Any:
        """One column of all that match, from the index that holds the texts if one is looked for."""
        if not self._query.text:
            return self._matches(of).subquery("counted")
        return union_all(*(self._matches(of).where(length) for length in (_IS_SHORT, _IS_LONG))).subquery("counted")


def _order(query: MemoryQuery, *, backwards: bool) -> list[Any]:
    key: ColumnElement[Any] = SORTABLE[query.sort]
    down = query.descending is not backwards
    if query.sort == "app_name":
        newest = Memory.created_at.desc(), Memory.id.desc()
        return [key.desc() if down else key.asc(), *newest]
    first: Any = key.desc() if down else key.asc()
    if query.sort in ("memory", "content"):
        first = _bytewise("memories.content", down)
    elif query.sort in ("importance", "archived_at", "deleted_at", "expires_at"):
        first = first.nulls_first() if backwards else first.nulls_last()
    return [first, Memory.id.desc() if down else Memory.id.asc()]


def _bytewise(expression: str, down: bool) -> ColumnElement[Any]:
    """Texts in the order of their bytes, as OpenMemory's SQLite sorted them, whatever the language of the database."""
    return literal_column(f"{expression} USING {'~>~' if down else '~<~'}")


def holds(part: str) -> ColumnElement[bool]:
    """Whether a text holds a part, in any case: as the index of parts is asked."""
    return Memory.content.ilike(like_pattern(part))


def contains(part: str, folded: Any = Memory.folded) -> ColumnElement[bool]:
    """Whether a text holds a part, in any case: as many are looked through, one after the other."""
    matches: ColumnElement[bool] = folded.like(func.lower(like_pattern(part)))
    return matches


def like_pattern(part: str) -> str:
    """What a text is LIKE that holds a part, whatever characters this has."""
    return "%" + re.sub(r"([%_\\])", r"\\\1", part) + "%"
