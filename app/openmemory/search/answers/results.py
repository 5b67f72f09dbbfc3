"""The rows that a search has read, the checks that decide whether these are enough, and the answer made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import numpy as np

from openmemory.content_policy.injection import LABEL
from openmemory.search.answers.conflicts import conflicts
from openmemory.search.answers.explanation import SearchRound, answer_explanation, explained
from openmemory.search.answers.newer import Newer
from openmemory.search.context import SearchContext
from openmemory.search.ranking.features import ABOUT, BESIDE, FEATURES
from openmemory.search.ranking.linear_model import Ranked
from openmemory.search.schemas import Arm, Method, PassageAnswer, PassageResult, ScoreParts, SearchAnswer, SearchResult

_ALONE = {"time": "time", "recency": "recency", "named": "named", "flagged": "penalty"}
_GROUPS: Mapping[str, Sequence[str]] = {
    "base": ("base", "question"),
    "dense": ("meaning", "near"),
    "lexical": ("words", "covered"),
    "late": ("tokens", "said"),
    "beside": BESIDE,
    "text": tuple(name for name in ABOUT if name not in _ALONE),
    **{part: (name,) for name, part in _ALONE.items()},
}
"""The features whose terms each part of a score sums up."""

_MEMBERS = np.array([[float(feature in names) for feature in FEATURES] for names in _GROUPS.values()])


@dataclass(slots=True)
class ReadRows:
    """The hits of a search, with their scores, and the rows of those that the caller may read."""

    limit: int
    """The number of rows to read."""
    bounded: bool = False
    """A hit that scores too little to be shown is read only if its text contains the query as it is written."""
    tried_ids: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)
    hits: dict[UUID, Ranked] = field(default_factory=dict)
    rounds: dict[UUID, SearchRound] = field(default_factory=dict)
    """The round of each score, if scores are to be explained."""
    cut: bool = False
    """Hits of the last round score too little to be shown, and so would those of a further round."""

    def add_round(self, hits: Sequence[Ranked], of: SearchRound | None) -> None:
        """Adds the hits of a round. The scores of the last round replace earlier ones."""
        self.hits |= {hit.id: hit for hit in hits}
        if of is not None:
            self.rounds |= dict.fromkeys((hit.id for hit in hits), of)

    def best(self) -> list[Ranked]:
        """The best of the rows that were read back, in the order of their final scores."""
        hits = [self.hits[id_].lowered() if LABEL in row.labels else self.hits[id_] for id_, row in self.rows.items()]
        return sorted(hits, key=lambda hit: -hit.score)[: self.limit]

    def remaining(self, score: float) -> int:
        """The number of further hits that may be among the best, if none of them scores above `score`.

        An earlier text (`as_of`) may turn out to be flagged only after it was read back.
        """
        late = sum(hit.score < score for hit in self.best()) if self.enough else 0
        return max(0, self.limit - len(self.rows)) + late

    @property
    def enough(self) -> bool:
        """Returns True if the requested number of rows was read."""
        return len(self.rows) >= self.limit


def search_answer(
    context: SearchContext,
    read_rows: ReadRows,
    method: Method,
    best: Sequence[Ranked],
    *,
    newer: Mapping[UUID, Newer] | None = None,
    arms: Mapping[UUID, Arm] | None = None,
    last: SearchRound | None = None,
    embedded_text: str | None = None,
) -> SearchAnswer:
    """The answer with these hits. It is explained if the query asks for it.

    `newer` are the newer memories by the ids of the older ones that they may replace, `arms` are the terms of the
    reranker, `last` is the last round of both arms, `embedded_text` the text that the model embedded.
    """
    answer = SearchAnswer([_result(read_rows.rows[hit.id], hit, hit.score) for hit in best], method)
    _mark(answer.results, newer or {})
    answer.conflicts = conflicts(answer.results)
    if context.query.explain:
        answer.explanation = answer_explanation(context, last, embedded_text)
        for hit, result in zip(best, answer.results, strict=True):
            if (of := read_rows.rounds.get(hit.id)) is not None:  # otherwise only an older memory brought it
                result.explanation = explained(hit, of, (arms or {}).get(hit.id))
    return answer


def _mark(results: Sequence[SearchResult], newer: Mapping[UUID, Newer]) -> None:
    """Names the newer memory of each result that is replaced, and the older one of each that may replace one."""
    by_id = {result.id: result for result in results}
    for result in results:
        if (successor := newer.get(result.id)) is not None:
            result.newer = successor.id if successor.replaces else None
            by_id[successor.id].older = result.id


def results_without_scores(rows: Sequence[Any]) -> list[SearchResult]:
    """Rows that were read back although no search found them, as results without a score."""
    return [_result(row, None, None) for row in rows]


def overview_results(read_rows: ReadRows, best: Sequence[Ranked]) -> list[SearchResult]:
    """The memories of an overview, which have no scores: there was no search."""
    return [_result(read_rows.rows[hit.id], None, None) for hit in best]


def passage_answer(read_rows: ReadRows, method: Method, best: Sequence[Ranked]) -> PassageAnswer:
    """The answer with these hits among passages."""
    results = []
    for hit in best:
        row = read_rows.rows[hit.id]
        results.append(
            PassageResult(
                id=row.id,
                content=row.content,
                role=row.speaker,
                position=row.place,
                thread_id=row.thread_id,
                title=row.title,
                path=row.path,
                first_line=row.first_line,
                last_line=row.last_line,
                heading=row.heading,
                language=row.language,
                namespace=row.namespace,
                app_name=row.app_name,
                kind=row.kind,
                created_at=row.created_at,
                score=hit.score,
                parts=_parts(hit),
                metadata=row.metadata_,
                labels=row.labels,
            )
        )
    return PassageAnswer(results, method)


def _result(row: Any, hit: Ranked | None, score: float | None) -> SearchResult:
    """Converts a row that was read back to a result. The database has already validated it."""
    return SearchResult(
        id=row.id,
        memory=row.content,
        hash=row.hash,
        created_at=row.created_at,
        updated_at=row.updated_at,
        score=score,
        parts=hit and _parts(hit),
        metadata=row.metadata_,
        categories=row.categories,
        namespace=row.namespace,
        thread_id=row.thread_id,
        kind=row.kind,
        app_name=row.app_name,
        labels=row.labels,
        expires_at=row.expires_at,
        valid_until=row.valid_until,
        key=row.key,
        added_by=None if row.added_by == row.app_name else row.added_by,
    )


def _parts(hit: Ranked) -> ScoreParts:
    if hit.values is None:
        return ScoreParts(ranking=hit.score)
    sums: dict[str, float] = dict(zip(_GROUPS, (_MEMBERS @ hit.adds).tolist(), strict=True))
    sums["base"] += hit.levelled
    sums["penalty"] = 0.0 - sums["penalty"]
    return ScoreParts(ranking=hit.order, cosine=hit.cosine, bm25=hit.bm25, reranked=hit.reranked, **sums)
