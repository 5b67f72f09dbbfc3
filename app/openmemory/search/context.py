"""The context of one search: the request, the caller and the settings, as all stages see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from openmemory.access.rule_cache import RuleCache
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.embeddings.port import PACKAGED
from openmemory.identity.caller import Caller
from openmemory.index.space import Space, Spaces
from openmemory.search.corpus import MEMORIES, Corpus
from openmemory.search.query.periods import Period
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.compiled_filter import CompiledFilter, compiled_filter

FLOORS = {PACKAGED: 0.2}
"""Cosines below which a model's vectors are meaningless. The packaged model's are 0.05 on average for unrelated
sentences, with a deviation of 0.07. An answer without any word of the question has 0.22 in nineteen of twenty cases."""


class SearchResources(NamedTuple):
    """The resources that all searches share."""

    database: Database
    spaces: Spaces
    settings: Settings
    rulebook: RuleCache


@dataclass(frozen=True, slots=True)
class SearchContext:
    """The data of a search that stays the same from its first stage to its last."""

    database: Database
    rulebook: RuleCache
    space: Space
    """The model and the index that served when the search began."""
    caller: Caller
    query: SearchQuery
    filter: CompiledFilter
    limit: int
    """The number of results to answer with."""
    times: Sequence[Period]
    """The times that the query names."""
    write_wait: float
    """The maximum number of seconds to wait for what the user has just written."""
    half_life: timedelta | None
    """The time in which the recency of a memory halves. None: newer memories are not preferred."""
    hour: datetime
    """The time of the search, rounded down to the hour, so that equal searches have equal scores."""
    floor: float | None
    """The minimum cosine for a memory that shares no word with the query."""
    flags: bool
    """Texts with prompt injections are flagged."""

    @property
    def corpus(self) -> Corpus:
        """The rows that are searched."""
        return self.filter.corpus


def search_context(
    resources: SearchResources,
    caller: Caller,
    query: SearchQuery,
    times: Sequence[Period] = (),
    corpus: Corpus = MEMORIES,
) -> SearchContext:
    """The context of a search, with its filter compiled."""
    settings, space = resources.settings, resources.spaces.serving
    days, floor = settings.search.recency, settings.search.floor
    return SearchContext(
        resources.database,
        resources.rulebook,
        space,
        caller,
        query,
        compiled_filter(caller, query, corpus),
        limit=settings.search.limit if query.limit is None else query.limit,
        times=times,
        write_wait=settings.search.write_wait,
        half_life=timedelta(days=days) if days else None,
        hour=(query.as_of or datetime.now(UTC)).replace(minute=0, second=0, microsecond=0),
        floor=FLOORS.get(space.model) if floor == "auto" else floor,
        flags=settings.capture.injection != "store",
    )
