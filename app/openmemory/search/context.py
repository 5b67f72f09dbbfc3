"""Reads the context of the best hits: their neighbours in their threads, and the tokens of their texts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import LargeBinary, literal_column, select, union_all

from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.index import tokens
from openmemory.index.sync.entries import array_of
from openmemory.index.tokens import StoredTokens
from openmemory.search.threads import ThreadNeighbour, link, linked


async def thread_context(
    tx: Tx, caller: Caller, hits: Sequence[UUID], model: str, best: Sequence[UUID]
) -> tuple[list[ThreadNeighbour], StoredTokens]:
    """Combines `threads.links` of the hits and `tokens.of_memories` of the best in one statement.

    Either takes less time than the overhead of a statement.
    """
    values = {**caller.parameters, "hits": array_of(hits), **tokens.wanted(caller.user_id, model, best)}
    rows = await _around(caller.owner, caller.default).rows(tx, values)
    [(heads, packed)] = [row[-2:] for row in rows if row[0] is None]
    return [link(row[:-2]) for row in rows if row[0] is not None], tokens.unpacked(best, heads, packed)


@cache
def _around(owner: bool, default: Default) -> CompiledStatement:
    near = linked(owner, default).subquery()
    kept = tokens.PACKED.columns(heads=LargeBinary, tokens=LargeBinary).subquery()
    none: Any = literal_column("NULL")
    return CompiledStatement(
        union_all(select(*near.c, none, none), select(*(none for _ in near.c), kept.c.heads, kept.c.tokens)),
        plain=True,
        binary=True,
    )
