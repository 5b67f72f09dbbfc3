"""Finds out which candidates the caller may read, before they are ranked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PgUUID

from openmemory.access.readable import readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.search.corpus import MEMORIES, Corpus

_IDS: Any = ARRAY(PgUUID(as_uuid=True))


async def readable(tx: Tx, caller: Caller, ids: Sequence[UUID], corpus: Corpus = MEMORIES) -> set[UUID]:
    """Those of the rows that the caller may read now. Logs nothing, because none of them is shown."""
    rows = await _may_read(caller.owner, caller.default, corpus).rows(tx, {**caller.parameters, "ids": list(ids)})
    return {id_ for (id_,) in rows}


@cache
def _may_read(owner: bool, default: Default, corpus: Corpus) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    rows = corpus.rows
    is_requested = rows.id == func.any(bindparam("ids", type_=_IDS))
    return CompiledStatement(select(rows.id).where(is_requested, readable_by(caller, rows)), plain=True)
