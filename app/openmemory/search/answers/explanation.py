"""Explains the scores of search results: what each feature adds to the logit, and how the question was understood.

Has no side effects. Computed afterwards, from the data that the rounds of the search kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from uuid import UUID

from openmemory.search.context import SearchContext
from openmemory.search.ranking.features import FEATURES, Candidate
from openmemory.search.ranking.linear_model import Ranked
from openmemory.search.schemas import AnswerExplanation, Arm, Explanation, FeatureTerm, TimeRead


@dataclass
class SearchRound:
    """One round of a search. `candidates`: those that were ranked and that the caller may read. `whole`: the caller may
    read every text that was to be ranked. `cut`: more texts were found than were to be ranked."""

    candidates: Sequence[Candidate] = ()
    whole: bool = True
    cut: bool = False

    @cached_property
    def ranks(self) -> tuple[dict[UUID, int], dict[UUID, int], dict[UUID, int]]:
        """The ranks by words, by meaning and by tokens, from 1."""
        by_bm25 = sorted((one for one in self.candidates if one.words), key=_by_words)
        by_cosine = sorted(
            (one for one in self.candidates if one.cosine is not None), key=lambda one: -(one.cosine or 0.0)
        )
        by_maxsim = sorted((one for one in self.candidates if one.late), key=_by_tokens)
        rankings = by_bm25, by_cosine, by_maxsim
        by_words, by_meaning, by_tokens = ({one.id: at for at, one in enumerate(some, 1)} for some in rankings)
        return by_words, by_meaning, by_tokens


def _by_words(one: Candidate) -> tuple[bool, float]:
    return (False, 0.0) if one.words is None else (one.words.partial, -one.words.score)


def _by_tokens(one: Candidate) -> float:
    return 0.0 if one.late is None else -one.late.maxsim


def explained(hit: Ranked, of: SearchRound, reranker: Arm | None = None) -> Explanation:
    """Explains the score of a result. `of` is the last round that ranked it."""
    words, meaning, tokens = (ranks.get(hit.id) for ranks in of.ranks)
    values, weights = hit.values, hit.weights
    terms = []
    if values is not None and weights is not None:
        each = zip(FEATURES, values.tolist(), weights.score.tolist(), weights.order.tolist(), strict=True)
        terms = [
            FeatureTerm(name, value, weight, value * weight, value * order)
            for name, value, weight, order in each
            if value and (weight or order)
        ]
        if hit.levelled:
            terms.append(FeatureTerm("level", hit.levelled, 1.0, hit.levelled, 0.0))
    terms_text = " ".join(f"{term.adds:+.6g} ({term.feature})" for term in terms if term.adds)
    formula = f"score = 1 / (1 + exp(-({terms_text})))" if terms else f"score = {hit.score:.6g}"
    if reranker is not None:
        formula += f" · {1 - reranker.weight:g}, and of the reranker {reranker.adds:.6g}"
    return Explanation(
        formula=formula,
        features=terms,
        words=Arm(words, hit.bm25),
        meaning=Arm(meaning, hit.cosine),
        tokens=Arm(tokens, hit.maxsim),
        reranker=reranker,
    )


def unembedded_words(query: str, embedded_text: str) -> list[str]:
    """The words of a query that the model did not embed, in their order."""
    rest = iter(embedded_text.split())
    next_word = next(rest, None)
    missing = []
    for word in query.replace("\x00", " ").split():
        if word == next_word:
            next_word = next(rest, None)
        else:
            missing.append(word)
    return missing


def answer_explanation(
    context: SearchContext, last: SearchRound | None = None, embedded_text: str | None = None
) -> AnswerExplanation:
    """Explains how a question was understood. `last` is the last round, None if no arm ran. `embedded_text` is the
    text that the model embedded, None if the model or the index did not answer."""
    candidates = () if last is None else last.candidates
    return AnswerExplanation(
        embedded=embedded_text,
        left_out=[] if embedded_text is None else unembedded_words(context.query.text, embedded_text),
        floor=None if last is None else context.floor,
        times=[TimeRead(time.start, time.end) for time in context.times],
        candidates={
            "words": sum(one.words is not None for one in candidates),
            "meaning": sum(one.cosine is not None for one in candidates),
        },
        recency=None if last is None or context.half_life is None else context.half_life / timedelta(days=1),
        as_of=context.query.as_of,
    )
