"""Scores memories by the names that they share with the best hit.

"Where is the company of Alice's brother?" needs two memories: the one that names the company, and the one that says
where it is. The second shares no word with the question. So the names in the best hit are looked for in the other hits,
which gain from them. This is pseudo-relevance feedback, limited to names: other words of the best hit say again what
the question says.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Select, Text, Uuid, bindparam, cast, column, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by
from openmemory.identity.caller import Caller, Default
from openmemory.index.bm25 import idf
from openmemory.index.sync.entries import array_of
from openmemory.search.corpus import Corpus
from openmemory.search.fusion import Fused

NAMES_WEIGHT = 0.2
"""The maximum that the names in the best hit add to another, as a share of the best score."""

MAX_HITS = 50
"""The number of hits in which the names are looked for."""

MAX_NAMES = 32
"""The number of different lexemes of names that are looked for."""


def shared(named: Mapping[UUID, Collection[str]]) -> dict[UUID, float]:
    """The weight of the names in each hit, as a share of the greatest. Names in few of `MAX_HITS` weigh most."""
    holding: dict[str, int] = {}
    for names in named.values():
        for name in names:
            holding[name] = holding.get(name, 0) + 1
    weights = {id_: sum(idf(MAX_HITS, holding[name]) for name in names) for id_, names in named.items()}
    most = max(weights.values(), default=0.0)
    return {id_: weight / most for id_, weight in weights.items() if weight > 0}


def with_names(hits: Sequence[Fused], shares: Mapping[UUID, float]) -> tuple[Sequence[Fused], dict[UUID, float]]:
    """The hits with what names add, best first, and the values of these terms. Equal scores keep their order.

    score = min(best score, score + NAMES_WEIGHT · share · best score)
    """
    if not shares or not NAMES_WEIGHT:
        return hits, {}
    best = hits[0].score
    adds = {hit.id: min(NAMES_WEIGHT * shares.get(hit.id, 0.0) * best, best - hit.score) for hit in hits}
    found = [hit._replace(score=hit.score + adds[hit.id], named=adds[hit.id]) for hit in hits]
    return sorted(found, key=lambda hit: -hit.score), {id_: value / NAMES_WEIGHT for id_, value in adds.items()}


_WORD = r"[[:upper:]][\w\u2019-]*"
_NAME = (
    rf"[^[:space:].!?:;\u2026\u3002\u201c\u201d\u201e\u00ab\u00bb()\"-][[:space:]]+({_WORD}(?:[[:space:]]+{_WORD})*)"
)
"""A regular expression for capitalised words that do not begin a sentence."""

_NAMES = f"""
array(select distinct w.lexeme from lexicon x, regexp_matches({{table}}.content, '{_NAME}', 'g') found,
      unnest(lexical_words(x.language::regconfig, found[1])) w limit {MAX_NAMES})
"""  # noqa: S608 - only constants are put in


_HELD = (
    "array(select name from unnest(best.names) name where {table}.words @@"
    r" ('''' || replace(replace(name, '\', '\\'), '''', '''''') || '''')::tsquery)"
)


def wanted(hits: Sequence[Fused]) -> dict[str, Any]:
    """The parameters of `names_held` for these hits."""
    return {"best": hits[0].id, "others": array_of(hit.id for hit in hits[1:MAX_HITS])}


def names_held(owner: bool, default: Default, corpus: Corpus) -> Select[Any]:
    """Selects the id of each of the `others` that contains a name of the `best`, and these names. The caller must be
    able to read the best."""
    caller, rows = Caller.anyone(owner=owner, default=default), corpus.rows
    names: Any = literal_column(_NAMES.format(table=corpus.kind.table), ARRAY(Text)).label("names")
    best = (
        select(names)
        .where(rows.id == bindparam("best", type_=Uuid()), func.cardinality(rows.labels) == literal_column("0"))
        .where(readable_by(caller, rows))
        .cte("best")
        .prefix_with("MATERIALIZED")
    )
    others = (
        func.unnest(cast(bindparam("others", type_=Text), ARRAY(Uuid)))
        .table_valued(column("id", Uuid), name="others")
        .render_derived()
    )
    held: Any = literal_column(_HELD.format(table=corpus.kind.table), ARRAY(Text))
    one = select(held.label("held")).where(rows.id == others.c.id).offset(literal_column("0")).lateral("one")
    return (
        select(others.c.id, one.c.held)
        .select_from(best.join(others, func.cardinality(best.c.names) > literal_column("0")).join(one, true()))
        .where(func.cardinality(one.c.held) > literal_column("0"))
    )
