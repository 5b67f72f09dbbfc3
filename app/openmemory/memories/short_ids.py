"""Short ids: the first characters of a memory's UUID, as many as its reader needs to distinguish it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Uuid, bindparam, cast, column, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import aliased

from openmemory.access.readable import readable_by
from openmemory.config.settings import LimitSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.errors import ConflictError, Invalid
from openmemory.identity.caller import Caller, Default
from openmemory.identity.principal import Scope
from openmemory.memories import validation
from openmemory.memories.lifecycle.transitions import movable
from openmemory.memories.models import Memory
from openmemory.memories.state import State

SHORT_LENGTH = 6
"""The number of characters of a short id, unless more are needed."""

MIN_LENGTH = 4
"""The smallest number of characters that are accepted."""

MAX_COUNT = 1_000
"""Up to this number, the memories that an ambiguous id may mean are counted."""

CANDIDATES = 3
"""The number of candidates that the error about an ambiguous id names."""

_DIGITS = 32

PATTERN = rf"^[0-9a-fA-F](-?[0-9a-fA-F]){{{MIN_LENGTH - 1},{_DIGITS - 1}}}-?$"
"""A UUID, or its first characters."""

_SHORT_OR_WHOLE = re.compile(PATTERN)


class ShortIds:
    """Shortens the ids of memories, and finds memories by short ids."""

    def __init__(self, database: Database, limits: LimitSettings) -> None:
        self._database = database
        self._limits = limits

    async def shortened(self, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Returns for each id its first characters, which no other memory that the caller may read has."""
        if not ids:
            return {}
        bounds = [_bounds(id_.hex[:SHORT_LENGTH]) for id_ in ids]
        values = {"ids": list(ids), "lows": [low for low, _ in bounds], "highs": [high for _, high in bounds]}
        async with self._database.statement() as tx:
            rows = await neighbours(caller.owner, caller.default).rows(tx, values | caller.parameters)
        return {id_: _shortest(id_, before, after) for id_, before, after in rows}

    async def resolved(
        self, caller: Caller, references: Sequence[UUID | str], field: str, target: State = State.DELETED
    ) -> list[UUID]:
        """Returns the ids. `references`: UUIDs or their first characters. A short id stands for a memory that the
        caller may move to `target`; with the default these are the memories that they may read.

        An unknown short id becomes a UUID that is as unknown, so that the use case treats both alike.

        Raises:
            Invalid: one is neither a UUID nor the beginning of one.
            ConflictError: a short id is the beginning of several ids. The error names some of them to a caller who may
                read.
        """
        if len(references) > self._limits.ids:
            validation.count(references, field, self._limits.ids, "limits.ids")
        parsed_references = [_read(one, field) for one in references]
        short = list(dict.fromkeys(one for one in parsed_references if isinstance(one, str)))
        ids_by_prefix = await self._matching_ids(caller, short, target) if short else {}
        for digits, ids in ids_by_prefix.items():
            if len(ids) > 1:
                raise _ambiguous(field, digits, ids if Scope.READ in caller.principal.scopes else [], len(ids))
        return [
            one if isinstance(one, UUID) else next(iter(ids_by_prefix.get(one, ())), _bounds(one)[0])
            for one in parsed_references
        ]

    async def _matching_ids(self, caller: Caller, prefixes: list[str], target: State) -> dict[str, list[UUID]]:
        """Returns the ids that begin with these digits, in order."""
        bounds = [_bounds(digits) for digits in prefixes]
        values = {"lows": [low for low, _ in bounds], "highs": [high for _, high in bounds]}
        ids_by_prefix: defaultdict[str, list[UUID]] = defaultdict(list)
        async with self._database.statement() as tx:
            for place, id_ in await matches(caller.owner, caller.default, target).rows(tx, values | caller.parameters):
                ids_by_prefix[prefixes[place - 1]].append(id_)
        return ids_by_prefix


def parsed(text: str) -> UUID | str | None:
    """Returns the UUID, or the digits with which one begins; None if the text is neither."""
    text = text.strip().removeprefix("urn:uuid:").strip("{}")
    if not _SHORT_OR_WHOLE.fullmatch(text):
        return None
    digits = text.replace("-", "").lower()
    return UUID(digits) if len(digits) == _DIGITS else digits


def _read(reference: UUID | str, field: str) -> UUID | str:
    value = reference if isinstance(reference, UUID) else parsed(reference)
    if value is None:
        words = f"must be UUIDs, or their first characters ({MIN_LENGTH} or more), as the search gives them"
        raise Invalid(field, words)
    return value


def _ambiguous(field: str, digits: str, ids: Sequence[UUID], number: int) -> ConflictError:
    """`ids`: those that the message may name, in order."""
    many = f"{number:,}" if number <= MAX_COUNT else f"more than {MAX_COUNT:,}"
    around = [None, *ids[: CANDIDATES + 1], None]
    examples = [_shortest(id_, *sides) for id_, *sides in zip(ids[:CANDIDATES], around, around[2:], strict=False)]
    more = f", such as {', '.join(examples)}" if examples else ""
    message = f"{field}: {digits} is the beginning of {many} ids of memories."
    return ConflictError(message, code="ambiguous_id", hint=f"Give more characters of the id{more}.")


def _bounds(digits: str) -> tuple[UUID, UUID]:
    """Returns the first and the last UUID that begin with these digits."""
    return UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))


def _shortest(id_: UUID, *neighbours: UUID | None) -> str:
    text = str(id_)
    shared = max((_shared(text, str(other)) for other in neighbours if other is not None), default=0)
    length = max(SHORT_LENGTH, shared + 1)
    return text[: length + 1] if text[length - 1] == "-" else text[:length]


def _shared(one: str, other: str) -> int:
    """Returns the number of characters with which both begin."""
    return next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])


def _unnested(*names: str) -> Any:
    """Returns the lists of ids bound as `lows`, `highs` and so on as a table, with the `place` of each row."""
    lists = (cast(bindparam(f"{name}s", type_=ARRAY(Uuid)), ARRAY(Uuid)) for name in names)
    columns = (column(name, Uuid) for name in names)
    return func.unnest(*lists).table_valued(*columns, with_ordinality="place", name="prefix").render_derived()


def _in_order(prefix: Any, *which: ColumnElement[bool], descending: bool = False) -> Any:
    """Returns the memories in a range of ids as a mapped class.

    The planner has no estimate for a small range: it would rather scan an index of all memories, or of the
    user's. The OFFSET keeps the predicate about the user out of this part of the statement, and no other index than the
    primary key serves this part, because none holds the revision.
    """
    rows = select(Memory).where(*which, Memory.revision >= 1).order_by(Memory.id.desc() if descending else Memory.id)
    return aliased(Memory, rows.offset(literal_column("0")).correlate(prefix).subquery())


@lru_cache(maxsize=16)
def matches(owner: bool, default: Default, target: State) -> CompiledStatement:
    """The statement that finds the ids of memories, in order, that begin with digits, for each range of ids."""
    caller = Caller.anyone(owner=owner, default=default)
    prefix = _unnested("low", "high")
    rows = _in_order(prefix, Memory.id >= prefix.c.low, Memory.id <= prefix.c.high)
    match = (
        select(rows.id)
        .where(movable(caller, target, rows))
        .order_by(rows.id)
        .limit(MAX_COUNT + 1)
        .correlate(prefix)
        .lateral("match")
    )
    both = select(prefix.c.place, match.c.id).select_from(prefix.join(match, true()))
    return CompiledStatement(both.order_by(prefix.c.place, match.c.id), plain=True)


@lru_cache(maxsize=16)
def neighbours(owner: bool, default: Default) -> CompiledStatement:
    """The statement that finds the next readable id on each side of an id, if it begins with the same digits."""
    caller = Caller.anyone(owner=owner, default=default)
    prefix = _unnested("id", "low", "high")
    before = _in_order(prefix, Memory.id >= prefix.c.low, Memory.id < prefix.c.id, descending=True)
    after = _in_order(prefix, Memory.id > prefix.c.id, Memory.id <= prefix.c.high)
    sides = (
        select(rows.id).where(readable_by(caller, rows)).order_by(order).limit(1).correlate(prefix).scalar_subquery()
        for rows, order in ((before, before.id.desc()), (after, after.id))
    )
    return CompiledStatement(select(prefix.c.id, *sides), plain=True)
