"""Shows the newer memory before the older one that it may replace.

The pairs come from `openmemory.dedup.comparison`. The newer memory is read as every result is, through `readable_by`
and the filters of the query, so a pair shows nothing of a memory that the caller may not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, case, literal_column, null

from openmemory.content_policy.injection import LABEL
from openmemory.dedup.replacement import Verdict, asks_of_before, verdict_of
from openmemory.memories.models import Memory
from openmemory.search.query.periods import Period
from openmemory.search.query.text import has_words, literal_text
from openmemory.search.ranking.linear_model import Ranked

MOST = 20
"""The maximum number of newer memories of a result that are considered: the newest."""

CHAIN = 3
"""The maximum number of steps from a memory to a newer one, and from that to a newer one."""

_OF_THAT_TIME = 0.5
"""A memory belongs to a time that the question names if it is at least this close to it."""

Pairs = list[tuple[str, str, float, str | None]]
"""The newer memories of a result, the newest first: id, hash of the text, probability, and the user's decision."""


class Newer(NamedTuple):
    """The newer memory of a result. `replaces`: the statement of the result no longer holds."""

    id: UUID
    replaces: bool


def column(same: ColumnElement[bool] | None) -> ColumnElement[Any]:
    """The `Pairs` of a memory, null if there are none. `same`: its text is the present one; None: it is."""
    pairs: ColumnElement[Any] = literal_column(_PAIRS)
    return (pairs if same is None else case((same, pairs), else_=null())).label("newer")


_PAIRS = f"""(
    SELECT jsonb_agg(jsonb_build_array(n.newer, n.newer_hash, n.probability, k.decision) ORDER BY n.said_at DESC)
    FROM (
        SELECT newer, older, newer_hash, probability, said_at FROM near_memories
        WHERE older = {Memory.__tablename__}.id AND older_hash = {Memory.__tablename__}.hash
        ORDER BY said_at DESC LIMIT {MOST}
    ) AS n
    LEFT JOIN kept_pairs AS k ON k.first = least(n.newer, n.older) AND k.second = greatest(n.newer, n.older)
    WHERE k.decision IS DISTINCT FROM 'different'
)"""  # noqa: S608 - only constants are put in


def newer_ids(row: Any) -> list[UUID]:
    """The ids of the memories that may replace the one of a row, if the caller may read them."""
    return [UUID(id_) for id_, *_ in row.newer or ()]


def of_row(row: Any, rows: dict[UUID, Any]) -> Newer | None:
    """The newer memory to show with a row, among those that were read: the newest that replaces it, or else the newest
    that may. A flagged memory replaces nothing."""
    unsure = None
    for id_, text_hash, probability, decision in row.newer or ():
        other = rows.get(UUID(id_))
        if other is None or other.hash != text_hash or other.namespace != row.namespace or LABEL in other.labels:
            continue
        if decision is None and verdict_of(probability) is Verdict.REPLACES:
            return Newer(other.id, True)
        unsure = unsure or Newer(other.id, False)
    return unsure


class Placed(NamedTuple):
    """Results in the order in which they are shown, and the newer memories by the ids of the older."""

    hits: list[Ranked]
    newer: dict[UUID, Newer]


def place_newer(
    hits: Sequence[Ranked],
    rows: dict[UUID, Any],
    hits_by_id: dict[UUID, Ranked],
    question: str,
    limit: int,
    *,
    times: Sequence[Period],
) -> Placed:
    """Places the newer memory of each hit directly before it, unless it stands before it anyway. If the question is
    about what was, the older one comes first. `hits_by_id` are the scores of all hits by id. `times`: those that the
    question names.

    The limit holds: what is beyond it is left out, but never a newer memory alone.
    """
    newer = _newer(hits, rows, question)
    before = asks_of_before(question)
    past = {
        id_ for id_, successor in newer.items() if before or _is_of_named_time(rows[id_], rows[successor.id], times)
    }
    hit_ids = {hit.id for hit in hits}
    older: dict[UUID, list[UUID]] = {}
    for hit in hits:
        if hit.id in past:
            older.setdefault(newer[hit.id].id, []).append(hit.id)
    placements: dict[UUID, Ranked] = {}

    def place(id_: UUID, path: frozenset[UUID]) -> None:
        if id_ in placements or id_ in path:
            return
        later = [newer[id_].id] if id_ in newer else []
        for one in older.get(id_, ()):
            place(one, path | {id_})
        for one in () if id_ in past else later:
            place(one, path | {id_})
        placements[id_] = hits_by_id[id_]
        for one in later if id_ in past else ():
            if one not in hit_ids:
                place(one, path)

    for hit in hits:
        place(hit.id, frozenset())
    results = [*placements.values()][:limit]
    result_ids = {hit.id for hit in results}
    while results and (last := results[-1].id) in newer and last not in past and newer[last].id not in result_ids:
        # An old fact is not shown without the newer one, unless the question names its time.
        result_ids.discard(results.pop().id)
    pairs = {id_: successor for id_, successor in newer.items() if id_ in result_ids and successor.id in result_ids}
    paired_ids = pairs.keys() | {successor.id for successor in pairs.values()}
    least = 0.0
    for at in range(len(results) - 1, -1, -1):
        if results[at].id in paired_ids and results[at].score < least:
            results[at] = results[at].raised(least)
        least = results[at].score
    return Placed(results, pairs)


def _is_of_named_time(older: Any, newer: Any, times: Sequence[Period]) -> bool:
    """Returns True if the older memory belongs to a time that the question names, and the newer one does not."""
    if not times:
        return False
    was, became = (max(time.closeness(row.created_at) for time in times) for row in (older, newer))
    return was >= _OF_THAT_TIME > became


def _newer(hits: Sequence[Ranked], rows: dict[UUID, Any], question: str) -> dict[UUID, Newer]:
    """The newer memories of the hits, and those of these. If the question is only signs, such as an emoji, a memory
    that may replace another counts only if it contains them too."""
    signs = "" if has_words(question) else literal_text(question)
    newer: dict[UUID, Newer] = {}
    chain = [hit.id for hit in hits]
    while chain:
        id_ = chain.pop()
        if id_ in newer or (successor := of_row(rows[id_], rows)) is None:
            continue
        if successor.replaces or signs in rows[successor.id].content:
            newer[id_] = successor
            chain.append(successor.id)
    return newer
