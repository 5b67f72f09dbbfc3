"""Document frequencies of large scopes, so that a search need not count common words.

A scope is all active memories of a user (namespace '') or those of one namespace. For each scope of at least `LARGE`
memories, `lexical_statistics` contains one row per term that at least one memory in a thousand contains, and one row
for the empty term with the scope's totals. `passage_statistics` is the same for passages. A term
without a row is rare, and a scope without rows is small: the search counts those itself. The figures may lag behind the
memories. They only weigh words, and never decide what exists.
"""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import String, Uuid, bindparam, text

from openmemory.database.engine import Database, Tx
from openmemory.database.sql_files import load_sql
from openmemory.index.models import ItemKind

TABLES = {ItemKind.MEMORY: "lexical_statistics", ItemKind.PASSAGE: "passage_statistics"}
"""The table of the statistics of each kind of items."""

LARGE = 2_000
"""The minimum number of active memories in a scope with statistics."""
RARE = 0.001
"""A term in a smaller share of a scope's memories has no row. Neither has a term in fewer than ten memories."""
DRIFT = 0.05
"""Statistics are due if the number of memories has changed by more than this share."""


def _parts(kind: ItemKind) -> dict[str, str]:
    """Returns the table names and the bounds that the statements for a kind of items contain."""
    bounds = {"large": str(LARGE), "rare": str(RARE), "drift": str(DRIFT)}
    return bounds | {"rows": kind.table, "statistics": TABLES[kind]}


_STALE = {kind: text(load_sql(__name__, "due", **_parts(kind))) for kind in ItemKind}
_REFRESH = {
    kind: text(load_sql(__name__, "refresh", **_parts(kind))).bindparams(bindparam("user", type_=Uuid()))
    for kind in ItemKind
}

_LOCK = 0x6F6D7374
_ALONE = text(f"select pg_try_advisory_xact_lock({_LOCK}, hashtext(:user))").bindparams(bindparam("user", type_=String))


async def stale_users(tx: Tx, kind: ItemKind = ItemKind.MEMORY) -> list[UUID]:
    """Users whose statistics are missing, out of date, or no longer needed."""
    return list((await tx.execute(_STALE[kind])).scalars())


async def refresh(tx: Tx, user: UUID, kind: ItemKind = ItemKind.MEMORY) -> int:
    """Recounts the terms of a user's large scopes. Returns the number of written rows. About 2 s for 100,000 memories.

    Writes nothing while another process does the same: the two could deadlock on each other's rows.
    """
    if not await tx.scalar(_ALONE, {"user": str(user)}):
        return 0
    return (await tx.execute(_REFRESH[kind], {"user": user})).rowcount


class StatisticsRefresh:
    """Keeps the statistics of all users up to date."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def refresh_stale(self) -> None:
        """Recount the terms of the users whose statistics are due, each in its own transaction."""
        for kind in ItemKind:
            async with self._database.statement() as tx:
                users = await stale_users(tx, kind)
            for user in users:
                async with self._database.transaction() as tx:
                    await refresh(tx, user, kind)
