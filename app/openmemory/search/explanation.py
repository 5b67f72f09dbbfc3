"""Explains the scores of search results: the terms that add up to each score, and how the question was understood.

Has no side effects. Computed afterwards, from the data that the rounds of the search kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from uuid import UUID

from openmemory.index.port import Hit
from openmemory.search.context import SearchContext
from openmemory.search.fusion import (
    DENSE_WEIGHT,
    FLAGGED_SHARE,
    HALF_WEIGHT_SIZE,
    Fused,
    between,
    dense_share,
)
from openmemory.search.late_interaction import LateScore
from openmemory.search.lexical import LexicalHit
from openmemory.search.names import NAMES_WEIGHT
from openmemory.search.periods import Period
from openmemory.search.recency import NAMED_TIME_WEIGHT, RECENCY_WEIGHT, Recency
from openmemory.search.schemas import (
    AnswerExplanation,
    Arm,
    DenseShare,
    Explanation,
    NeighbourShare,
    NeighbourTerm,
    Term,
    TimeRead,
)
from openmemory.search.threads import ThreadNeighbour


@dataclass
class SearchRound:
    """The rankings of one search round, all of them readable by the caller.

    They are the lists of both arms, best first; `fused`, before threads and times; the data from threads, times,
    tokens and names; and the factor that `with_threads` applied.
    """

    dense: Sequence[Hit]
    words: Sequence[LexicalHit]
    fused: Sequence[Fused] = ()
    links: Sequence[ThreadNeighbour] = ()
    thread_scale: float = 1.0
    moments: Mapping[UUID, datetime] = field(default_factory=dict)
    times: Sequence[Period] = ()
    recency: Recency | None = None
    late: Mapping[UUID, LateScore] = field(default_factory=dict)
    named: Mapping[UUID, float] = field(default_factory=dict)
    time_weight: float = NAMED_TIME_WEIGHT
    """The weight of a memory being written at a named time."""
    recency_weight: float = RECENCY_WEIGHT
    importance_weight: float = 0.0
    """The weight of a memory's importance; 0: it does not count."""

    @cached_property
    def share(self) -> float:
        return dense_share(self.dense, self.words)

    @cached_property
    def ranks(self) -> tuple[dict[UUID, int], dict[UUID, int]]:
        """The ranks by words and by meaning, from 1."""
        words = {hit.id: place for place, hit in enumerate(self.words, 1)}
        return words, {hit.id: place for place, hit in enumerate(self.dense, 1)}

    @cached_property
    def bounds(self) -> tuple[float, float, float]:
        """The highest BM25, the nearest and the farthest cosine."""
        cosines = [hit.score for hit in self.dense]
        return max((hit.score for hit in self.words), default=0.0), max(cosines, default=0.0), min(cosines, default=0.0)

    @cached_property
    def neighbours(self) -> dict[UUID, list[NeighbourShare]]:
        """The neighbours that add to each memory's score."""
        known = {hit.id: hit for hit in self.fused}
        found: dict[UUID, list[NeighbourShare]] = {}
        for link in self.links:
            hit = known[link.hit].lowered() if link.flagged else known[link.hit]
            share = NeighbourShare(link.hit, abs(link.step), link.weight, hit.score)
            found.setdefault(link.neighbour, []).append(share)
        return found


def explained(hit: Fused, of: SearchRound, reranker: Arm | None = None) -> Explanation:
    """Explains the score of a result. `of` is the last round that ranked it."""
    highest, nearest, farthest = of.bounds
    by_words, by_meaning = of.ranks
    weight = of.share
    # Times and recency are added after the threads, so the factor of the threads does not apply to them.
    scale, later = hit.scale, hit.scale / of.thread_scale
    moment = of.moments.get(hit.id)
    ranked = hit.time > 0 or hit.recency > 0
    close = max((time.closeness(moment) for time in of.times), default=0.0) if moment is not None and ranked else 0.0
    fresh = of.recency.of(moment) if of.recency is not None and moment is not None and ranked else 0.0
    neighbours = of.neighbours.get(hit.id, [])
    lent = sum(each.share * each.score for each in neighbours)
    terms: dict[str, Term] = {
        "words": Arm(
            hit.lexical,
            1 - weight,
            0.0 if hit.bm25 is None else between(hit.bm25, 0.0, highest),
            scale,
            by_words.get(hit.id) if hit.bm25 is not None else None,
            hit.bm25,
        ),
        "meaning": Arm(
            hit.dense,
            weight,
            between(hit.cosine, farthest, nearest) if hit.cosine is not None else _of_words(hit, weight, scale),
            scale,
            # A memory below the floor was dropped, and returns only as a neighbour.
            by_meaning.get(hit.id) if hit.cosine is not None else None,
            hit.cosine,
        ),
        "beside": NeighbourTerm(hit.beside, 1.0, lent, scale, neighbours),
        "time": Term(hit.time, of.time_weight, close, later),
        "recency": Term(hit.recency, of.recency_weight, fresh, later),
    }
    late = _late(hit, of.late.get(hit.id))
    rated = None
    if of.importance_weight:
        rated = Term(hit.importance, of.importance_weight, hit.importance / (of.importance_weight * scale), scale)
    value = of.named.get(hit.id, 0.0)
    names = Term(hit.named, NAMES_WEIGHT, value, hit.named / (NAMES_WEIGHT * value)) if hit.named else None
    more = (("importance", rated), ("late", late), ("names", names), ("reranker", reranker))
    stages = {name: term for name, term in more if term is not None}
    return Explanation(
        formula=_formula(hit, terms | stages),
        penalty=hit.penalty,
        late=late,
        names=names,
        reranker=reranker,
        importance=rated,
        **terms,  # type: ignore[arg-type]
    )


def _of_words(hit: Fused, weight: float, scale: float) -> float:
    """The value of the meaning of a memory that has no vector: that of its words, or 0."""
    return hit.dense / (weight * scale) if hit.without_vector else 0.0


def _late(hit: Fused, late: LateScore | None) -> Arm | None:
    if late is None:
        return None
    # Earlier factors do not apply to it.
    return Arm(hit.late, late.weight, late.value, hit.scale / late.scale, late.rank, late.maxsim)


def _formula(hit: Fused, terms: Mapping[str, Term]) -> str:
    parts = [f"{t.weight:.6g}·{t.value:.6g}·{t.scale:.6g} ({name})" for name, t in terms.items() if t.adds]
    said = " + ".join(parts) or "0"
    return f"{hit.score:.6g} = " + (f"{FLAGGED_SHARE:g}·({said})" if hit.penalty else said)


def shared(of: SearchRound) -> DenseShare:
    """The weight of meaning in a round, and its reasons."""
    weight, vectors = of.share, len(of.dense)
    if not of.dense or not of.words:
        formula = f"{weight:g}: nothing was found by {'words' if of.dense else 'meaning'}"
    else:
        formula = f"{weight:.6g} = {DENSE_WEIGHT:g}·{vectors}/({vectors} + {HALF_WEIGHT_SIZE})"
    return DenseShare(weight, vectors, formula)


def left_out(query: str, embedded: str) -> list[str]:
    """The words of a query that the model did not embed, in their order."""
    rest = iter(embedded.split())
    wanted = next(rest, None)
    missing = []
    for word in query.replace("\x00", " ").split():
        if word == wanted:
            wanted = next(rest, None)
        else:
            missing.append(word)
    return missing


def answer_explanation(
    context: SearchContext, last: SearchRound | None = None, embedded: str | None = None
) -> AnswerExplanation:
    """Explains how a question was understood. `last` is the last round, None if no arm ran. `embedded` is the text that
    the model embedded, None if the model or the index did not answer."""
    ranked = last is not None and bool(last.dense or last.words)
    return AnswerExplanation(
        embedded=embedded,
        left_out=[] if embedded is None else left_out(context.query.text, embedded),
        dense_share=shared(last) if last is not None and ranked else None,
        floor=None if last is None else context.floor,
        times=[TimeRead(time.start, time.end) for time in context.times],
        candidates={"words": len(last.words) if last else 0, "meaning": len(last.dense) if last else 0},
        recency=None if last is None or context.half_life is None else context.half_life / timedelta(days=1),
        as_of=context.query.as_of,
    )
