"""One linear model: what it knows of candidates, how it orders them, and what its scores mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.embeddings.chance import USUAL
from openmemory.index.port import Hit
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.candidates.rows import CandidateRow
from openmemory.search.query.periods import Period
from openmemory.search.ranking import linear_model
from openmemory.search.ranking.features import (
    FEATURES,
    MAXSIM,
    NEARNESS,
    PLACE,
    UNLISTED,
    Candidate,
    QuestionParts,
    speaker,
)
from openmemory.search.ranking.late_interaction import LateScore
from openmemory.search.ranking.linear_model import Ranked, candidates, chance, levelled, logit, ranked
from openmemory.search.ranking.names import contains, leading_name, second_hop
from openmemory.search.ranking.recency import Recency
from openmemory.search.ranking.weights import FLAGGED, TOKENS, VECTORS, WORDS, Weights

A, B, C, D = (UUID(int=number) for number in range(1, 5))
NOW = datetime(2026, 3, 1, tzinfo=UTC)


def row(text: str = "a text", thread: str | None = None, **fields) -> CandidateRow:
    found = CandidateRow(thread, "default", NOW, False, len(text), text[:60], text[-4:], None, text, b"")
    return found._replace(**fields)


def ranking_of(
    *some: Candidate,
    question: str = "what?",
    rows: Mapping[UUID, CandidateRow] = {},
    beside: Mapping[UUID, Mapping[int, UUID]] = {},
) -> list[Ranked]:
    known = [replace(one, row=rows.get(one.id, row()), beside=beside.get(one.id, {})) for one in some]
    return ranked(known, QuestionParts(question))


def value(hit: Ranked, feature: str) -> float:
    assert hit.values is not None
    return float(hit.values[PLACE[feature]])


def values(found: list[Ranked], feature: str) -> dict[UUID, float]:
    return {hit.id: value(hit, feature) for hit in found}


def test_candidates_are_what_either_arm_found_each_once():
    dense = [Hit(A, 0.5), Hit(B, 0.3), Hit(C, 0.1)]
    found = {
        one.id: one for one in candidates(dense, [LexicalHit(C, 3.0, coverage=0.4), LexicalHit(D, 1.0)], floor=0.2)
    }
    assert found.keys() == {A, B, C, D}
    assert (found[C].cosine, found[C].words.coverage) == (0.1, 0.4)
    assert (found[D].cosine, found[D].waiting) == (None, False)


def test_what_holds_no_word_and_is_not_near_is_dropped():
    dense = [Hit(A, 0.5), Hit(B, 0.1)]
    assert [one.id for one in candidates(dense, [], floor=0.2)] == [A]
    assert [one.id for one in candidates(dense, [], floor=None)] == [A, B]
    assert candidates([], []) == []


def test_words_stand_for_the_meaning_of_what_has_no_vector_yet():
    hits = [Hit(A, 0.3)], [LexicalHit(B, 3.0, coverage=0.1)]
    assert [one.waiting for one in candidates(*hits) if one.id == B] == [False]
    for more in ({"complete": True}, {"waiting": {B}}):
        [new] = [one for one in candidates(*hits, **more) if one.id == B]
        assert new.waiting
        assert value(ranking_of(new)[0], "meaning") == pytest.approx(NEARNESS[0] + 0.1 * NEARNESS[1])
    assert [one.waiting for one in candidates([], hits[1])] == [True]


def test_all_texts_are_ranked_by_the_weights_for_the_best_evidence_of_any():
    compared, near, new = Candidate(A, 0.4, late=LateScore(0.5, 0.0)), Candidate(B, 0.3), Candidate(C, waiting=True)
    assert linear_model.weights_for([new]) is WORDS
    assert linear_model.weights_for([near, new]) is VECTORS
    assert linear_model.weights_for([near, new, compared]) is TOKENS
    found = ranking_of(compared, Candidate(B))
    assert values(found, "meaning") == {A: USUAL.nearness(0.4), B: UNLISTED}
    estimate = MAXSIM[0] + MAXSIM[1] * UNLISTED
    assert values(found, "tokens") == {A: 0.5, B: pytest.approx(estimate)}
    assert {hit.id: hit.maxsim for hit in found} == {A: 0.5, B: None}


cosines = st.none() | st.floats(-0.2, 1)
shares = st.none() | st.floats(0, 1)


@given(
    said=st.lists(st.tuples(cosines, shares, shares, st.booleans(), st.booleans()), max_size=12),
    steps=st.lists(st.tuples(st.integers(0, 11), st.sampled_from([-2, -1, 1, 2]), st.integers(0, 11)), max_size=9),
)
def test_scores_are_the_chances_of_the_sums_and_fall(said, steps) -> None:
    ids = [UUID(int=number) for number in range(1, 13)]
    some = [
        Candidate(
            id_,
            cosine,
            None if share is None else LexicalHit(id_, share, coverage=share),
            waiting=cosine is None,
            late=None if maxsim is None else LateScore(maxsim, 0.1),
        )
        for id_, (cosine, share, maxsim, *_) in zip(ids, said, strict=False)
    ]
    rows = {
        id_: row("Is it so?" if asks else "user: it is", "t", flagged=flagged)
        for id_, (_, _, _, asks, flagged) in zip(ids, said, strict=False)
    }
    beside: dict[UUID, dict[int, UUID]] = {}
    for at, step, to in steps:
        beside.setdefault(ids[at], {})[step] = ids[to]
    found = ranking_of(*some, rows=rows, beside=beside)
    assert {hit.id for hit in found} == {one.id for one in some}
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    assert [hit.order for hit in found] == sorted((hit.order for hit in found), reverse=True)
    for hit in found:
        assert 0 < hit.score < 1
        assert float(hit.adds.sum()) + hit.levelled == pytest.approx(logit(hit.score), abs=1e-6)
        assert hit.flagged == rows[hit.id].flagged
        assert hit.lowered().score <= hit.score
        assert hit.lowered().lowered().score == hit.lowered().score


def test_a_flagged_text_keeps_a_twentieth_of_its_odds_and_lends_nothing():
    some = Candidate(A, 0.8), Candidate(B, 0.8)
    plain = ranking_of(*some, beside={B: {-1: A}}, rows={A: row(thread="t"), B: row(thread="t")})
    rows = {A: row(thread="t", flagged=True), B: row(thread="t")}
    flagged = ranking_of(*some, beside={B: {-1: A}}, rows=rows)
    before, after = ({hit.id: hit for hit in hits} for hits in (plain, flagged))
    assert value(after[B], "before") == 0 < value(before[B], "before")
    assert value(after[A], "flagged") * FLAGGED == FLAGGED
    assert before[A].lowered().score == pytest.approx(chance(logit(before[A].score) + FLAGGED))


def test_what_stands_beside_a_hit_in_its_thread_knows_of_it():
    some = [Candidate(A, 0.9), Candidate(B), Candidate(C, 0.3), Candidate(D, 0.3)]
    rows = {A: row("Where is the lamp?", "t"), B: row(thread="t"), C: row(thread="t"), D: row(thread="u")}
    found = ranking_of(*some, rows=rows, beside={B: {-1: A, 1: C}, A: {1: B}})
    answers, before, thread = (values(found, name) for name in ("answers", "before", "thread"))
    assert answers[B] == before[B] == thread[B] > 0
    assert thread[C] == before[B]
    assert (before[A], thread[D]) == (0, 0)
    assert values(found, "asks") == {A: 1, B: 0, C: 0, D: 0}


@pytest.mark.parametrize(
    ("text", "role", "who"),
    [("Caroline: hello", None, "caroline"), ("user: hello", None, "user"), ("hello", "Assistant", "assistant"),
     ("hello", None, ""), ("http://example.com", None, ""), ("one\ntwo: three", None, "")],
)  # fmt: skip
def test_who_says_a_text(text: str, role: str | None, who: str):
    assert speaker(row(text, role=role)) == who


def test_who_is_asked_about_and_who_asks():
    rows = {A: row("Caroline: yes"), B: row("Mel: yes"), C: row("user: yes"), D: row("yes")}
    some = [Candidate(id_, 0.5) for id_ in rows]
    found = ranking_of(*some, rows=rows, question="What did Caroline say to me?")
    assert values(found, "speaker") == {A: 1, B: 0, C: 0, D: 0}
    assert values(found, "other_speaker") == {A: 0, B: 1, C: 1, D: 0}
    assert values(found, "user_me") == {A: 0, B: 0, C: 1, D: 0}
    found = ranking_of(*some, rows=rows, question="What did Carolines say?")
    assert not any(values(found, "speaker").values())


def test_times_and_recency_are_features():
    rows = {A: row(created_at=NOW), B: row(created_at=NOW - timedelta(days=10))}
    times = [Period(NOW - timedelta(days=1), NOW + timedelta(days=1))]
    question = QuestionParts("when?", times, Recency(timedelta(days=10), NOW))
    found = ranked([Candidate(id_, 0.5, row=rows[id_]) for id_ in rows], question)
    assert values(found, "time") == {A: 1, B: 0}
    assert values(found, "recency") == pytest.approx({A: 1, B: 0.5})


@pytest.mark.parametrize(
    ("head", "name"),
    [("Kettler Maschinenbau is in Regensburg", "Kettler Maschinenbau"), ("Demon Dice\nA game", "Demon Dice"),
     ("Laie (film)\nA film", "Laie"), ("The Who played", None), ("The Bank of England said", "Bank of England"),
     ("Anna Maria: hello", None), ("I met Anna", None), ("Berlin is big", None),
     ("Room 12 has a window", None), ("lower case", None), ("", None)],
)  # fmt: skip
def test_the_name_that_a_text_begins_with(head: str, name: str | None):
    assert leading_name(head) == name


def test_a_name_in_a_best_text_leads_to_what_begins_with_it():
    names = {0: "Kettler Maschinenbau"}
    texts = list(enumerate(["Kettler Maschinenbau is in Regensburg", "My brother works at Kettler Maschinenbau"]))
    assert second_hop(names, texts[1:]) == {0}
    assert second_hop(names, texts[:1]) == set(), "its own text does not count"


@pytest.mark.parametrize(
    ("text", "there"),
    [("who made demon dice?", True), ("demon dice", True), ("demon dices", False), ("ademon dice", False),
     ("demons dice, then demon dice", True), ("", False)],
)  # fmt: skip
def test_a_question_contains_a_name_as_whole_words(text: str, there: bool):
    assert contains(text, "demon dice") is there


def test_a_text_that_begins_with_a_name_in_the_question_is_about_it():
    heads = {A: "Kettler Maschinenbau\nA company in Regensburg", B: "My brother works at Kettler Maschinenbau"}
    texts = [Candidate(id_, 0.5, row=row(head)) for id_, head in heads.items()]
    found = ranked(texts, QuestionParts("Where is Kettler Maschinenbau?"))
    assert values(found, "subject") == {A: 1, B: 0}
    assert values(found, "named") == {A: 0, B: 0}
    found = ranked(texts, QuestionParts("Where does my brother work?"))
    assert values(found, "subject") == {A: 0, B: 0}
    assert values(found, "named") == {A: 1, B: 0}


def test_texts_in_threads_have_an_order_of_their_own():
    alone = [Candidate(A, 0.5, row=row()), Candidate(B, 0.4, row=row())]
    assert all(hit.weights is VECTORS for hit in ranked(alone, QuestionParts("what?")))
    mixed = [*alone[:1], Candidate(B, 0.4, row=row(thread="t"))]
    for hit in ranked(mixed, QuestionParts("what?")):
        assert hit.weights is not None
        assert hit.weights.order is VECTORS.thread_order
        assert hit.weights.score is VECTORS.score


@pytest.mark.parametrize("kind", [TOKENS, VECTORS, WORDS])
def test_more_evidence_never_counts_against_a_text(kind: Weights):
    for weights in kind:
        for whole, hinge in (("meaning", "near"), ("words", "covered"), ("tokens", "said")):
            assert weights[PLACE[whole]] >= 0
            assert weights[PLACE[whole]] + weights[PLACE[hinge]] >= 0


@given(st.lists(st.floats(-9, 9), max_size=9))
def test_levelled_scores_never_rise_and_keep_their_sum(logits: list[float]) -> None:
    found = levelled(np.array(logits)).tolist()
    assert found == sorted(found, reverse=True) or np.diff(found).max() < 1e-9
    assert sum(found) == pytest.approx(sum(logits), abs=1e-6)
    assert logits != sorted(logits, reverse=True) or found == pytest.approx(logits)


def test_features_and_weights_have_the_same_places():
    assert len(TOKENS.order) == len(FEATURES) == len(set(FEATURES))
    assert np.isfinite([*TOKENS, *VECTORS, *WORDS]).all()
