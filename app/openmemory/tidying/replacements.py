"""Lists the pairs of memories of which the newer may replace the older, for the user to decide.

`tidying.duplicates` carries out the decisions: they are the same as those about near duplicates. A decided pair is not
listed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Integer, Uuid, and_, bindparam, exists, func, select
from sqlalchemy.orm import aliased

from openmemory.access.readable import readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.dedup.models import NearMemory
from openmemory.dedup.replacement import Verdict, judge, verdict_of
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.listing import pages
from openmemory.memories.listing.pages import ListAccess
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryQuery, MemoryRecord
from openmemory.tidying.models import KeptPair

MAX_PAGE_SIZE = 100


@dataclass(frozen=True, slots=True)
class PossibleReplacement:
    """Two memories. The newer one may replace the older one; with `replaces`, it probably does.

    `because` names the features that speak for it (`openmemory.dedup.replacement`), the strongest first.
    """

    newer: MemoryRecord
    older: MemoryRecord
    replaces: bool
    because: Sequence[str]


@dataclass(frozen=True, slots=True)
class ReplacementPage:
    """A page of pairs, those with the newest texts first, and the number of all."""

    items: Sequence[PossibleReplacement]
    total: int


class Replacements:
    """Lists the pairs. Only the user may, never an app."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, caller: Caller, *, page: int = 1, size: int = 20) -> ReplacementPage:
        """A page of the pairs of which the caller may read both memories. Logs the read.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the page or its size is invalid.
        """
        caller.must_be_owner("see what may be replaced", everywhere=False)
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        values = caller.parameters | {"skipped": (page - 1) * size, "size": size}
        async with self._database.planned() as tx:
            rows = await statement(everywhere=caller.everywhere).rows(tx, values)
        ids = list(dict.fromkeys(id_ for row in rows for id_ in (row.newer, row.older)))
        records = await pages.fetch_records(self._database, ListAccess(caller), MemoryQuery(), ids)
        by_id = {record.id: record for record in records}
        items = [
            PossibleReplacement(
                by_id[row.newer],
                by_id[row.older],
                verdict_of(row.probability) is Verdict.REPLACES,
                judge(by_id[row.older].content, by_id[row.newer].content, row.nearness).because[:3],
            )
            for row in rows
            if row.newer in by_id and row.older in by_id
        ]
        return ReplacementPage(items, rows[0].total if rows else 0)


@cache
def statement(*, everywhere: bool) -> CompiledStatement:
    """A page of the pairs of the user that were not decided, and the number of all. Binds the caller's parameters,
    `skipped` and `size`."""
    caller = Caller.anyone(owner=True, default="user", everywhere=everywhere)
    newer, older = aliased(Memory), aliased(Memory)
    decided = exists().where(
        KeptPair.first == func.least(NearMemory.newer, NearMemory.older),
        KeptPair.second == func.greatest(NearMemory.newer, NearMemory.older),
    )
    query = (
        select(
            NearMemory.newer, NearMemory.older, NearMemory.probability, NearMemory.nearness,
            func.count().over().label("total"),
        )
        .join(newer, and_(newer.id == NearMemory.newer, newer.hash == NearMemory.newer_hash))
        .join(older, and_(older.id == NearMemory.older, older.hash == NearMemory.older_hash))
        .where(
            NearMemory.user_id == bindparam("caller_user_id", type_=Uuid),
            newer.namespace == older.namespace,
            readable_by(caller, newer),
            readable_by(caller, older),
            ~decided,
        )
        .order_by(NearMemory.said_at.desc(), NearMemory.newer.desc(), NearMemory.older.desc())
        .offset(bindparam("skipped", type_=Integer))
        .limit(bindparam("size", type_=Integer))
    )  # fmt: skip
    return CompiledStatement(query)
