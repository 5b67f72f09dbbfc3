"""Removes words from the query that are too common in the searched memories, before the model embeds it.

In a conversation, nearly every question names one of the speakers. The name does not separate the memories, since half
of them contain it, but it dominates the vector of a short question: such a question is near to every greeting of that
person. Lexical search knows how common a word is. The model does not, so it does not get the common words.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, Text, Uuid

from openmemory.access.rule_cache import revision_of
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.search import acl_sql
from openmemory.search.bm25 import FilterSet, LexicalFilter
from openmemory.search.own_writes import PENDING

RATE = 0.05
"""The minimum frequency of a common word among a memory's words.

A memory of n words contains it with probability 1 - (1 - RATE)ⁿ. A word in a greater share of the memories is common.
That share is 0.4 for short messages of a conversation, where half and more contain the speakers' names, and
`COMMON_SHARE` for pages, since many meaningful words are in many of these.
"""

COMMON_SHARE = 0.9
"""A word in a greater share of the memories is common, regardless of their length."""

SAMPLE = 100
"""The number of newest memories in the searched scope that are used to find common words."""

MIN_MEMORIES = 20
"""The minimum number of memories in a scope for shares to be meaningful."""

MAX_QUERY_WORDS = 64
"""Longer queries are left unchanged: no single word dominates their vector. Counted in words."""


class FilteredQuery(NamedTuple):
    """The query without its common words, and what the same statement reads."""

    text: str
    revision: int | None
    """The revision of the app's rules (`access.rule_cache`). None: the app may read nothing."""
    pending: bool
    """Something that the user has just written is not in the index yet; see `search.own_writes`."""


async def filtered_query(tx: Tx, query: str, where: LexicalFilter, app: UUID | None = None) -> FilteredQuery:
    """Removes the common words of a query. Leaves it unchanged if most of its words are common: they matter together
    then. Also unchanged are queries of one word, and of more than `MAX_QUERY_WORDS`.

    Words are separated by spaces. A word is common if enough of the newest memories of the user, or of the searched
    namespaces, contain a form of it; see `RATE`. Stop words ("what", "the") stay, because the model was trained on
    whole questions.
    """
    query = query.replace("\x00", " ")
    if where.nothing:
        return FilteredQuery(query, None, False)
    words = query.split()
    if not 1 < len(words) <= MAX_QUERY_WORDS:
        words = []
    binds: dict[str, Any] = {"in_user": where.user, "in_namespaces": list(where.namespaces), "words": words, "app": app}
    rows = await _statement(FilterSet.of(where)).rows(tx, binds | acl_sql.binds(where.rules))
    is_common_at = {place: is_common for *_, place, is_common in rows if place is not None}
    common = {place for place, is_common in is_common_at.items() if is_common}
    if common and 2 * len(common) <= len(is_common_at):
        query = " ".join(word for place, word in enumerate(words, 1) if place not in common)
    return FilteredQuery(query, *rows[0][:2])


@lru_cache(maxsize=64)
def _statement(shape: FilterSet) -> CompiledStatement:
    """The revision, whether something is pending, and for each meaningful word its place and whether it is common.
    Returns at least one row."""
    sql = f"""
    with {shape.ruled.sets}sample as materialized (
      select m.words from memories m where {shape.counted} and m.state = 'active'
      order by m.created_at desc limit {SAMPLE}
    ), enough as materialized (
      select count(*) * least(
        {COMMON_SHARE}::float8, 1 - power(1 - {RATE}::float8, avg(length(words))::float8)) as least
      from sample having count(*) >= {MIN_MEMORIES}
    ), said as materialized (
      select w.place, lexical_phrase(x.language::regconfig, w.word) as word
      from enough, lexicon x, unnest(:words) with ordinality as w(word, place)
    )
    select rules.revision, {PENDING}, told.place, told.common
    from ({revision_of(":in_user", ":app")}) rules left join (
      select s.place, (select count(*) from sample where sample.words @@ s.word) > enough.least as common
      from said s, enough where numnode(s.word) > 0) told on true
    order by told.place
    """  # noqa: S608 - only names and constants are put in
    types: dict[str, Any] = {"in_user": Uuid(), "in_namespaces": ARRAY(Text), "words": ARRAY(Text), "app": Uuid()}
    return CompiledStatement(bound(sql, types), plain=True)
