"""What the model is asked: the query without the words that say nothing where it is asked.

In a conversation nearly every question names one of those who talk. The name tells the words apart from nothing, since
half of what is stored holds it, but it is most of the vector of a short question: such a question is near to every
greeting of that person. The words know how common a word is; the model does not, so it is not told the common ones.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, Text, Uuid

from app.database import Tx
from app.prepared import Prepared, bound
from app.search import ruled
from app.search.bm25 import LexicalFilter, Shape

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


async def focused(tx: Tx, query: str, where: LexicalFilter) -> str:
    """The query without its common words; as it is if most of its words are common: then they say it together.

    Words are what stands between spaces. One is common if so many of the newest memories of the user, or of the
    searched namespaces, hold a form of it; see `RATE`. Words that say nothing anywhere ("what", "the") stay where they
    are: the model was trained on whole questions.
    """
    query = query.replace("\x00", " ")
    words = query.split()
    if where.rules.nothing or not 1 < len(words) <= LONGEST:
        return query
    binds: dict[str, Any] = {"in_user": where.user, "in_namespaces": list(where.namespaces), "words": words}
    rows = await _statement(Shape.of(where)).rows(tx, binds | ruled.binds(where.rules))
    common = {place for place, is_common in rows if is_common}
    if not common or 2 * len(common) > len(rows):
        return query
    return " ".join(word for place, word in enumerate(words, 1) if place not in common)


@lru_cache(maxsize=64)
def _statement(shape: Shape) -> Prepared:
    """The places of the words that mean something, and whether they are common."""
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
    select s.place, (select count(*) from sample where sample.words @@ s.word) > enough.least as common
    from said s, enough where numnode(s.word) > 0 order by s.place
    """  # noqa: S608 - only names and constants are put in
    types: dict[str, Any] = {"in_user": Uuid(), "in_namespaces": ARRAY(Text), "words": ARRAY(Text)}
    return Prepared(bound(sql, types), plain=True)
