"""Short ids: the first characters of a memory's UUID, as many as tell it from every other that the caller reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, cast, column, func, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by
from openmemory.config.settings import LimitSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.errors import ConflictError, Invalid
from openmemory.identity.caller import Caller, Default
from openmemory.memories import validation
from openmemory.memories.lifecycle.transitions import movable
from openmemory.memories.models import Memory, State

SHOWN = 6
"""The number of characters that are shown, unless more are needed."""

ACCEPTED = 4
"""The smallest number of characters that are accepted."""

COUNTED = 1_000
"""Up to this number, the memories that an ambiguous id may mean are counted."""

_DIGITS = 32
_PREFIX = re.compile(r"[0-9a-f][0-9a-f-]*", re.IGNORECASE)


class ShortIds:
    """Shortens the ids of memories, and finds memories by short ids."""

    def __init__(self, database: Database, limits: LimitSettings) -> None:
        self._database = database
        self._limits = limits

    async def shortened(self, caller: Caller, ids: Sequence[UUID]) -> dict[UUID, str]:
        """Returns for each id its first characters, which no other memory that the caller may read has."""
        if not ids:
            return {}
        bounds = [_bounds(id_.hex[:SHOWN]) for id_ in ids]
        values = {"ids": list(ids), "lows": [low for low, _ in bounds], "highs": [high for _, high in bounds]}
        async with self._database.statement() as tx:
            rows = await _neighbours(caller.owner, caller.default).rows(tx, values | caller.parameters)
        return {id_: _shortest(id_, before, after) for id_, before, after in rows}

    async def resolved(
        self, caller: Caller, given: Sequence[str], field: str, target: State = State.DELETED
    ) -> list[UUID]:
        """Returns the ids that are meant. `given`: UUIDs or their first characters. A short id means a memory that the
        caller may move to `target`; with the default these are the memories that they may read.

        An unknown short id becomes a UUID that is as unknown, so that the use case treats both alike.

        Raises:
            Invalid: one is neither a UUID nor the beginning of one.
            ConflictError: a short id is the beginning of several ids.
        """
        if len(given) > self._limits.ids:
            validation.count(given, field, self._limits.ids, "limits.ids")
        found = [_parsed(one, field) for one in given]
        short = {place: digits for place, digits in enumerate(found) if isinstance(digits, str)}
        meant = await self._meant(caller, list(short.values()), target) if short else {}
        for digits, ids in meant.items():
            if len(ids) > 1:
                many = f"{len(ids):,}" if len(ids) <= COUNTED else f"more than {COUNTED:,}"
                raise ConflictError(
                    f"{field}: {digits} is the beginning of {many} ids of memories.",
                    code="ambiguous_id",
                    hint="Give more characters of the id.",
                )
        return [one if isinstance(one, UUID) else next(iter(meant.get(one, ())), _bounds(one)[0]) for one in found]

    async def _meant(self, caller: Caller, prefixes: list[str], target: State) -> dict[str, list[UUID]]:
        """Returns the ids that begin with these digits."""
        bounds = [_bounds(digits) for digits in prefixes]
        prefix = _unnested("low", "high")
        match = (
            select(Memory.id)
            .where(Memory.id >= prefix.c.low, Memory.id <= prefix.c.high, movable(caller, target))
            .limit(COUNTED + 1)
            .lateral("match")
        )
        query = select(prefix.c.place, match.c.id).select_from(prefix.join(match, true()))
        values = {"lows": [low for low, _ in bounds], "highs": [high for _, high in bounds]}
        found: defaultdict[str, list[UUID]] = defaultdict(list)
        async with self._database.statement() as tx:
            for place, id_ in await tx.execute(query, values | caller.parameters):
                found[prefixes[place - 1]].append(id_)
        return {digits: list(dict.fromkeys(ids)) for digits, ids in found.items()}


def _parsed(text: str, field: str) -> UUID | str:
    """Returns the UUID, or the digits with which one begins."""
    text = text.strip()
    digits = text.replace("-", "").lower()
    if _PREFIX.fullmatch(text) and ACCEPTED <= len(digits) < _DIGITS:
        return digits
    try:
        return UUID(text)
    except ValueError:
        raise Invalid(
            field, f"must be UUIDs, or their first characters ({ACCEPTED} or more), as the search gives them"
        ) from None


def _bounds(digits: str) -> tuple[UUID, UUID]:
    """Returns the first and the last UUID that begin with these digits."""
    return UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))


def _shortest(id_: UUID, *neighbours: UUID | None) -> str:
    text = str(id_)
    shared = max((_shared(text, str(other)) for other in neighbours if other is not None), default=0)
    length = max(SHOWN, shared + 1)
    return text[: length + 1] if text[length - 1] == "-" else text[:length]


def _shared(one: str, other: str) -> int:
    """Returns the number of characters with which both begin."""
    return next(place for place, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])


def _unnested(*names: str) -> Any:
    """Returns the lists of ids bound as `lows`, `highs` and so on as a table, with the `place` of each row."""
    lists = (cast(bindparam(f"{name}s", type_=ARRAY(Uuid)), ARRAY(Uuid)) for name in names)
    columns = (column(name, Uuid) for name in names)
    return func.unnest(*lists).table_valued(*columns, with_ordinality="place", name="prefix").render_derived()


@lru_cache(maxsize=16)
def _neighbours(owner: bool, default: Default) -> CompiledStatement:
    """The statement that finds the next readable id on each side of an id, if it begins with the same digits."""
    caller = Caller.anyone(owner=owner, default=default)
    prefix = _unnested("id", "low", "high")
    readable = readable_by(caller, Memory)
    before = select(Memory.id).where(Memory.id >= prefix.c.low, Memory.id < prefix.c.id, readable)
    after = select(Memory.id).where(Memory.id > prefix.c.id, Memory.id <= prefix.c.high, readable)
    sides = (before.order_by(Memory.id.desc()), after.order_by(Memory.id))
    return CompiledStatement(
        select(prefix.c.id, *(side.limit(1).correlate(prefix).scalar_subquery() for side in sides)), plain=True
    )
