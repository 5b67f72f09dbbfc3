"""Scores memories by their creation time: those from a time that the question names, or soon after, rank first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.database.compiled import CompiledStatement
from openmemory.search.context import SearchContext
from openmemory.search.corpus import Corpus
from openmemory.search.fusion import Fused, within_one
from openmemory.search.periods import Period

NAMED_TIME_WEIGHT = 0.5
"""The maximum that a named time adds to a score: as much as one retrieval arm can."""

RECENCY_WEIGHT = 0.1
"""The maximum that recency adds to a score if `search.recency` is set: enough to decide between equivalent memories."""


@cache
def _written(corpus: Corpus) -> CompiledStatement:
    rows = corpus.rows
    mine = rows.user_id == bindparam("user", type_=Uuid), rows.id == func.any(bindparam("ids", type_=ARRAY(Uuid)))
    return CompiledStatement(select(rows.id, rows.created_at).where(*mine), plain=True)


class Recency(NamedTuple):
    """The decay of a memory's recency with its age."""

    half_life: timedelta
    now: datetime

    def of(self, moment: datetime) -> float:
        """1 for a memory written just now, half as much for each half-life of age."""
        return float(0.5 ** max((self.now - moment) / self.half_life, 0.0))


def add_recency(
    ranked: Sequence[Fused],
    written: Mapping[UUID, datetime],
    times: Sequence[Period],
    recency: Recency | None = None,
) -> list[Fused]:
    """Adds the scores for times to the hits, best first. Equal scores keep their order.

        score = score + NAMED_TIME_WEIGHT · max over the times of closeness
            + RECENCY_WEIGHT · 0.5 ^ (age / half-life)

    The last term applies only with `recency`. All scores are divided by the best one if that is above 1. Hits with a
    score of 0 gain nothing: a time alone does not make a memory relevant.
    """
    raised = []
    for hit in ranked:
        moment = written.get(hit.id)
        if moment is None or hit.score <= 0:
            raised.append(hit)
            continue
        then = NAMED_TIME_WEIGHT * max((time.closeness(moment) for time in times), default=0.0)
        fresh = 0.0 if recency is None else RECENCY_WEIGHT * recency.of(moment)
        raised.append(hit._replace(score=hit.score + then + fresh, time=then, recency=fresh))
    return within_one(raised)


async def add_times(context: SearchContext, hits: Sequence[Fused]) -> tuple[Sequence[Fused], dict[UUID, datetime]]:
    """The hits with the scores for the times that the query names and for recency, and when they were written."""
    recency = recency_of(context)
    if not hits or not (context.times or recency):
        return hits, {}
    async with context.database.statement() as tx:
        rows = await _written(context.corpus).rows(
            tx, {"user": context.caller.user_id, "ids": [hit.id for hit in hits]}
        )
    return add_recency(hits, written := dict(rows), context.times, recency), written


def recency_of(context: SearchContext) -> Recency | None:
    """The recency that a search adds, if any."""
    return None if context.half_life is None else Recency(context.half_life, context.hour)
