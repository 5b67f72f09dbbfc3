"""What a time that a question names tells of the memories: those that were written then, or soon after, come first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import Uuid, bindparam, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.database.compiled import Prepared
from openmemory.database.engine import Tx
from openmemory.memories.models import Memory
from openmemory.search.fusion import Fused, within_one
from openmemory.search.periods import Period

THEN = 0.5
"""What being written at the time that a question names adds to a score: as much as all that one of the arms can say."""

FRESH = 0.1
"""What being new adds to a score at most where `search.recency` is set: enough to decide between what says the same."""

_WRITTEN = Prepared(
    select(Memory.id, Memory.created_at).where(
        Memory.user_id == bindparam("user", type_=Uuid), Memory.id == func.any(bindparam("ids", type_=ARRAY(Uuid)))
    ),
    plain=True,
)


class Recency(NamedTuple):
    """How much less a memory's being new counts with its age."""

    half_life: timedelta
    now: datetime

    def of(self, moment: datetime) -> float:
        """1 for what was written just now, half as much with every half-life before."""
        return float(0.5 ** max((self.now - moment) / self.half_life, 0.0))


def dated(
    ranked: Sequence[Fused],
    written: Mapping[UUID, datetime],
    times: Sequence[Period],
    recency: Recency | None = None,
) -> list[Fused]:
    """The hits with what their times add, best first; equal scores keep their order.

        score = score + THEN · max over the times of closeness + FRESH · 0.5 ^ (age / half-life)

    the last only with `recency`, and all divided by the best of these scores if that is above 1. What was not found
    gains nothing: a time alone tells nothing of what is meant.
    """
    raised = []
    for hit in ranked:
        moment = written.get(hit.id)
        if moment is None or hit.score <= 0:
            raised.append(hit)
            continue
        then = THEN * max((time.closeness(moment) for time in times), default=0.0)
        fresh = 0.0 if recency is None else FRESH * recency.of(moment)
        raised.append(hit._replace(score=hit.score + then + fresh, time=then, recency=fresh))
    return within_one(raised)


async def moments(tx: Tx, user: UUID, ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """When a user's memories were written, as far as they are there."""
    return dict(await _WRITTEN.rows(tx, {"user": user, "ids": list(ids)}))
