"""The rows that a search reads: the memories, or the passages of conversations."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import Uuid, bindparam, literal_column, select

from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.memories.models import Memory
from openmemory.sources.models import Passage


class Corpus(NamedTuple):
    """The rows of one table. All have the columns that searches use: owner, thread, text, words, state and times."""

    kind: ItemKind
    rows: Any
    """The mapped class."""


MEMORIES = Corpus(ItemKind.MEMORY, Memory)
PASSAGES = Corpus(ItemKind.PASSAGE, Passage)
CORPORA = {one.kind: one for one in (MEMORIES, PASSAGES)}

# In the order of an index: for an EXISTS the planner may scan the table, all of it for a user who has none.
_FIRST = select(Passage.id).where(Passage.user_id == bindparam("user", type_=Uuid))
_FIRST = _FIRST.order_by(Passage.created_at, Passage.id).limit(literal_column("1"))
_HAS_PASSAGES = CompiledStatement(_FIRST, plain=True)


async def has_passages(database: Database, caller: Caller) -> bool:
    """Returns True if the user has passages at all, in any state. Most users have none, and need no search of them."""
    async with database.statement() as tx:
        return bool(await _HAS_PASSAGES.rows(tx, {"user": caller.user_id}))
