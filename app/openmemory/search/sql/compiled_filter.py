"""The filter of one search, compiled once for all of its stages.

Filtering after ranking would find a rare match late or never, because it is as likely to be among the nearest as any
other memory. If the index cannot apply the filter, both retrieval arms get a small set of matching ids and rank only
those. If there are many matches, enough of them are among the nearest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import Integer, Uuid, bindparam, case, func, literal_column, select

from openmemory.access.rules import ALL, Rules
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.index.port import Filter
from openmemory.memories.models import ACTIVE
from openmemory.search.corpus import MEMORIES, Corpus
from openmemory.search.query.filters import All, Comparison, Node, Operator
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.filter import (
    LANGUAGE,
    PATH,
    SPEAKER,
    SYMBOL,
    Shape,
    by_shape,
    filtering,
    is_usual,
    predicate,
)
from openmemory.search.sql.lexical_filter import LexicalFilter

MAX_MATCHES = 5_000
"""The maximum number of matches for the arms. If there are more, the nearest of all memories contain enough matches."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Limits every arm of a search to the memories that its filter and the rules of the app allow."""

    lexical: LexicalFilter
    index: Filter

    @property
    def rules(self) -> Rules:
        """The rules of the app."""
        return self.lexical.rules


@dataclass(frozen=True, slots=True)
class CompiledFilter:
    """The conditions of one search in the forms that its stages need.

    `predicate(shape)` with the `parameters` is all of them in SQL; the parameters are also those of `readable_by`.
    `lexical` has them too, and `index` those that the index can apply itself.
    """

    shape: Shape
    parameters: Mapping[str, Any]
    lexical: LexicalFilter
    index: Filter
    beyond_index: bool
    """The index cannot apply all of the conditions."""
    corpus: Corpus = MEMORIES

    def within(self, rules: Rules, ids: tuple[UUID, ...] | None = None) -> SearchScope:
        """The scope under these rules, limited to these memories."""
        if rules is ALL and ids is None:
            return SearchScope(self.lexical, self.index)
        return SearchScope(replace(self.lexical, rules=rules, ids=ids), replace(self.index, rules=rules, ids=ids))

    async def matching(self, database: Database) -> tuple[UUID, ...] | None:
        """The ids of the user's active rows that meet the conditions, in no order.

        Returns None if the ids are not needed: the index applies all conditions, or there are more than `MAX_MATCHES`
        matches. Does not check what the caller may read.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not self.beyond_index:
            return None
        async with database.planned() as tx:
            [(ids,)] = await _matching(self.corpus, self.shape).rows(tx, {**self.parameters, "most": MAX_MATCHES})
        return None if ids is None else tuple(ids)


def compiled_filter(caller: Caller, query: SearchQuery, corpus: Corpus = MEMORIES) -> CompiledFilter:
    """Compiles the filters of a query by a caller."""
    shape, binds = filtering(_tree(query))
    user, spaces, kinds, apps = caller.user_id, query.namespaces, query.kinds, query.app_ids
    return CompiledFilter(
        shape,
        caller.parameters | binds,
        LexicalFilter(user, namespaces=spaces, kind=corpus.kind, shape=shape, parameters=binds),
        Filter(corpus.kind.tenant(user), namespaces=spaces, kinds=kinds, apps=apps, rules=ALL),
        beyond_index=bool(
            query.filter
            or query.below
            or query.languages
            or query.symbol
            or query.speakers
            or query.threads
            or query.categories
            or query.created_from
            or query.created_to
        ),
        corpus=corpus,
    )


def _tree(query: SearchQuery) -> Node | None:
    """All filters of a query as one."""
    lists = (
        ("namespace", query.namespaces),
        ("thread_id", query.threads),
        ("kind", query.kinds),
        ("app_id", query.app_ids),
        ("category", query.categories),
    )
    parts: list[Node] = [Comparison(field, Operator.IN, values) for field, values in lists if values]
    for operator, moment in ((Operator.GTE, query.created_from), (Operator.LTE, query.created_to)):
        if moment is not None:
            parts.append(Comparison("created_at", operator, (moment,)))
    if query.below:
        parts.append(Comparison(PATH, Operator.EQ, (query.below,)))
    if query.languages:
        parts.append(Comparison(LANGUAGE, Operator.IN, query.languages))
    if query.symbol:
        parts.append(Comparison(SYMBOL, Operator.EQ, (query.symbol,)))
    if query.speakers:
        parts.append(Comparison(SPEAKER, Operator.IN, query.speakers))
    if query.filter is not None:
        parts.append(query.filter)
    return All(tuple(parts)) if parts else None


@by_shape
def _matching(corpus: Corpus, shape: Shape) -> CompiledStatement:
    """An array of all ids. Null if there are more than `most`, so that none of these are sent."""
    most = bindparam("most", type_=Integer)
    matches = (
        select(corpus.rows.id)
        .where(
            corpus.rows.user_id == bindparam("caller_user_id", type_=Uuid()),
            corpus.rows.state == ACTIVE,
            predicate(shape, corpus.rows),
        )
        .limit(most + 1)
        .subquery("found")
    )
    ids = func.coalesce(func.array_agg(matches.c.id), literal_column("'{}'::uuid[]"))
    return CompiledStatement(
        select(case((func.count() <= most, ids))).select_from(matches), plain=True, prepare=is_usual(shape)
    )
