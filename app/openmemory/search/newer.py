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
from openmemory.search.query_text import as_written, has_words
from openmemory.search.ranking import Ranked

MOST = 20
"""The maximum number of newer memories of a result that are considered: the newest."""

CHAIN = 3
"""The maximum number of times that a newer memory of a newer one is looked for."""

Pairs = list[tuple[str, str, float, str | None]]
"""The newer memories of a result, the newest first: id, hash of the text, probability, and the user's decision."""


class Newer(NamedTuple):
    """The newer memory of a result. `replaces`: what the result says no longer holds."""

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


def wanted(row: Any) -> list[UUID]:
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


def placed(
    hits: Sequence[Ranked], rows: dict[UUID, Any], scored: dict[UUID, Ranked], question: str, limit: int
) -> Placed:
    """Places the newer memory of each hit directly before it, unless it stands before it anyway. If the question is
    about what was, the older one comes first. `scored` are the scores of all hits by id.

    The limit holds: what is beyond it is left out, but never a newer memory alone.
    """
    newer = _newer(hits, rows, question)
    before = asks_of_before(question)
    ranked = {hit.id for hit in hits}
    older: dict[UUID, list[UUID]] = {}
    for id_, found in newer.items():
        older.setdefault(found.id, []).append(id_)
    shown: dict[UUID, Ranked] = {}

    def place(id_: UUID, around: frozenset[UUID]) -> None:
        if id_ in shown or id_ in around:
            return
        later = [newer[id_].id] if id_ in newer else []
        for one in [one for one in older.get(id_, ()) if one in ranked] if before else later:
            place(one, around | {id_})
        shown[id_] = scored[id_]
        for one in later if before else ():
            if one not in ranked:
                place(one, around)

    for hit in hits:
        place(hit.id, frozenset())
    kept = [*shown.values()][:limit]
    there = {hit.id for hit in kept}
    while kept and (last := newer.get(kept[-1].id)) and last.id not in there:
        there.discard(kept.pop().id)  # an old fact is not shown without the newer one
    pairs = {id_: found for id_, found in newer.items() if id_ in there and found.id in there}
    moved = pairs.keys() | {found.id for found in pairs.values()}
    least = 0.0
    for at in range(len(kept) - 1, -1, -1):
        if kept[at].id in moved and kept[at].score < least:
            kept[at] = kept[at].raised(least)
        least = kept[at].score
    return Placed(kept, pairs)


def _newer(hits: Sequence[Ranked], rows: dict[UUID, Any], question: str) -> dict[UUID, Newer]:
    """The newer memories of the hits, and those of these. If the question is only signs, such as an emoji, a memory
    that may replace another counts only if it contains them too."""
    signs = "" if has_words(question) else as_written(question)
    newer: dict[UUID, Newer] = {}
    chain = [hit.id for hit in hits]
    while chain:
        id_ = chain.pop()
        if id_ in newer or (found := of_row(rows[id_], rows)) is None:
            continue
        if found.replaces or signs in rows[found.id].content:
            newer[id_] = found
            chain.append(found.id)
    return newer
