"""What the model is asked: the query without the words that say nothing where it is asked.

In a conversation nearly every question names one of those who talk. The name tells the words apart from nothing, since
half of what is stored holds it, but it is most of the vector of a short question: such a question is near to every
greeting of that person. The words know how common a word is; the model does not, so it is not told the common ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, Text, Uuid

from openmemory.access.rule_cache import revision_of
from openmemory.database.compiled import Prepared, bound
from openmemory.database.engine import Tx
from openmemory.search import acl_sql
from openmemory.search.bm25 import LexicalFilter, Shape

RATE = 0.05
"""Among a memory's words a common one is so frequent at least. A memory of n words holds it with a chance of
1 - (1 - RATE)ⁿ; a word in a greater share of the memories is common. That is 0.4 of short turns of a conversation,
where the names of those who talk are in half and more, and `MOST` of pages, since many words that mean something are in
many of these."""

MOST = 0.9
"""What is in a greater share of the memories is common, however long they are."""

SAMPLE = 100
"""Newest memories of the searched scope that tell how common a word is."""

FEWEST = 20
"""Memories of a scope from which on shares mean anything."""

LONGEST = 64
"""Words of a query from which on it is left as it is: no single word is much of its vector."""


class Look(NamedTuple):
    """The query without its common words, and the revision of the rules of the app that was asked for; see
    `openmemory.access.rule_cache`. None: the app may read nothing."""

    text: str
    revision: int | None


def looks(query: str, where: LexicalFilter) -> bool:
    """Whether a query is looked at at all: not if it is a single word or many, or nothing may be read."""
    return not where.rules.nothing and 1 < len(query.split()) <= LONGEST


async def focused(tx: Tx, query: str, where: LexicalFilter) -> str:
    """The query without its common words; as it is if most of its words are common: then they say it together.

    Words are what stands between spaces. One is common if so many of the newest memories of the user, or of the
    searched namespaces, hold a form of it; see `RATE`. Words that say nothing anywhere ("what", "the") stay where they
    are: the model was trained on whole questions.
    """
    query = query.replace("\x00", " ")
    return (await focused_for(tx, query, where, None)).text if looks(query, where) else query


async def focused_for(tx: Tx, query: str, where: LexicalFilter, app: UUID | None) -> Look:
    """The same of a query that `looks`, and in the same statement whether the rules that it goes by still hold."""
    query = query.replace("\x00", " ")
    words = query.split()
    binds: dict[str, Any] = {"in_user": where.user, "in_namespaces": list(where.namespaces), "words": words, "app": app}
    rows = await _statement(Shape.of(where)).rows(tx, binds | acl_sql.binds(where.rules))
    told = {place: is_common for _, place, is_common in rows if place is not None}
    common = {place for place, is_common in told.items() if is_common}
    if common and 2 * len(common) <= len(told):
        query = " ".join(word for place, word in enumerate(words, 1) if place not in common)
    return Look(query, rows[0][0])


@lru_cache(maxsize=64)
def _statement(shape: Shape) -> Prepared:
    """The revision, the places of the words that mean something, and whether they are common; at least one row."""
    sql = f"""
    with {shape.ruled.sets}sample as materialized (
      select m.words from memories m where {shape.counted} and m.state = 'active'
      order by m.created_at desc limit {SAMPLE}
    ), enough as materialized (
      select count(*) * least({MOST}::float8, 1 - power(1 - {RATE}::float8, avg(length(words))::float8)) as least
      from sample having count(*) >= {FEWEST}
    ), said as materialized (
      select w.place, lexical_phrase(x.language::regconfig, w.word) as word
      from enough, lexicon x, unnest(:words) with ordinality as w(word, place)
    )
    select rules.revision, told.place, told.common from ({revision_of(":in_user", ":app")}) rules left join (
      select s.place, (select count(*) from sample where sample.words @@ s.word) > enough.least as common
      from said s, enough where numnode(s.word) > 0) told on true
    order by told.place
    """  # noqa: S608 - only names and constants are put in
    types: dict[str, Any] = {"in_user": Uuid(), "in_namespaces": ARRAY(Text), "words": ARRAY(Text), "app": Uuid()}
    return Prepared(bound(sql, types), plain=True)
