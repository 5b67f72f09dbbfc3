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
from openmemory.index.models import ItemKind

TABLES = {ItemKind.MEMORY: "lexical_statistics", ItemKind.PASSAGE: "passage_statistics"}
"""The table of the statistics of each kind of items."""

LARGE = 2_000
"""The minimum number of active memories in a scope with statistics."""
RARE = 0.001
"""A term in a smaller share of a scope's memories has no row. Neither has a term in fewer than ten memories."""
DRIFT = 0.05
"""Statistics are due if the number of memories has changed by more than this share."""

_DUE = """
select m.user_id from (
  select user_id, count(*) as documents from {rows} where state = 'active' group by user_id) m
left join {statistics} s on s.user_id = m.user_id and s.namespace = '' and s.term = ''
where case when s.documents is null then m.documents >= {LARGE}
           else m.documents < {LARGE} or abs(m.documents - s.documents) > {DRIFT} * s.documents end
union
select s.user_id from {statistics} s
where s.namespace = '' and s.term = '' and not exists (
  select from {rows} m where m.user_id = s.user_id and m.state = 'active')
"""

_REFRESH = """
with total as materialized (
  select case when grouping(namespace) = 1 then '' else namespace end as namespace,
         count(*) as documents, sum(word_count) as words
  from {rows} where user_id = :user and state = 'active'
  group by grouping sets ((namespace), ())
  having count(*) >= {LARGE}
), used as materialized (
  select m.namespace, w.lexeme as term, count(*) as documents
  from {rows} m, unnest(m.words) w
  where m.user_id = :user and m.state = 'active' and exists (select from total)
  group by 1, 2
), fresh as materialized (
  select namespace, '' as term, documents, words from total
  union all
  select namespace, u.term, u.documents, 0
  from (select namespace, term, documents from used
        union all select '', term, sum(documents) from used group by term) u
  join total t using (namespace)
  where u.documents >= greatest(10, {RARE} * t.documents)
), gone as (
  delete from {statistics} s
  where s.user_id = :user
    and not exists (select from fresh f where f.namespace = s.namespace and f.term = s.term)
)
insert into {statistics} as s (user_id, namespace, term, documents, words)
select :user, namespace, term, documents, words from fresh
on conflict (user_id, namespace, term) do update set documents = excluded.documents, words = excluded.words
where (s.documents, s.words) is distinct from (excluded.documents, excluded.words)
"""


def _of(kind: ItemKind, sql: str) -> str:
    return sql.format(rows=kind.table, statistics=TABLES[kind], LARGE=LARGE, RARE=RARE, DRIFT=DRIFT)


_DUE_OF = {kind: text(_of(kind, _DUE)) for kind in ItemKind}
_REFRESH_OF = {kind: text(_of(kind, _REFRESH)).bindparams(bindparam("user", type_=Uuid())) for kind in ItemKind}


_LOCK = 0x6F6D7374
_ALONE = text(f"select pg_try_advisory_xact_lock({_LOCK}, hashtext(:user))").bindparams(bindparam("user", type_=String))


async def due(tx: Tx, kind: ItemKind = ItemKind.MEMORY) -> list[UUID]:
    """Users whose statistics are missing, out of date, or no longer needed."""
    return list((await tx.execute(_DUE_OF[kind])).scalars())


async def refresh(tx: Tx, user: UUID, kind: ItemKind = ItemKind.MEMORY) -> int:
    """Recounts the terms of a user's large scopes. Returns the number of written rows. About 2 s for 100,000 memories.

    Writes nothing while another process does the same: the two could deadlock on each other's rows.
    """
    if not await tx.scalar(_ALONE, {"user": str(user)}):
        return 0
    return (await tx.execute(_REFRESH_OF[kind], {"user": user})).rowcount


class StatisticsRefresh:
    """Keeps the statistics of all users up to date."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def refresh_due(self) -> None:
        """Recount the terms of the users whose statistics are due, each in its own transaction."""
        for kind in ItemKind:
            async with self._database.statement() as tx:
                users = await due(tx, kind)
            for user in users:
                async with self._database.transaction() as tx:
                    await refresh(tx, user, kind)
