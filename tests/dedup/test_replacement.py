"""The verdict on an older and a newer memory."""

from __future__ import annotations

import time

import pytest

from benchmarks.replaced import read
from openmemory.dedup.change_words import ADDING, CHANGED, ENDED, FORMER, NOW, PLANNED
from openmemory.dedup.replacement import LONGEST, Verdict, _matching_phrases, _read, asks_of_before, judge


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("I live in Hamburg.", "I moved to Leipzig last week."),
        ("I use VS Code as my editor.", "I switched to Neovim."),
        ("The database port is 5433.", "The database port is 5434."),
        ("Deployments need approval by the team lead.", "Deployments no longer need approval."),
        ("Ich wohne in Hamburg.", "Ich wohne jetzt in Leipzig."),
        ("Je travaille chez Renault.", "Je travaille maintenant chez Airbus."),
        # In these languages a verb says both who and what.
        ("Trabajo en Telefónica.", "Ahora trabajo en Indra."),
        ("Moro em Lisboa.", "Mudei-me para o Porto."),
        ("Lavoro alla Fiat.", "Adesso lavoro alla Ferrari."),
        ("The team meets in room Cedar.", "The team meets in room Maple from next week on."),
    ],
)
def test_a_change_is_seen(older, newer):
    assert judge(older, newer, 2.0).verdict is Verdict.REPLACES


@pytest.mark.parametrize(
    ("older", "newer", "nearness"),
    [
        ("Staging does not need a VPN.", "Staging needs a VPN.", 2.5),
        ("I'm allergic to penicillin.", "The test showed that I am not allergic to penicillin.", 3.0),
        ("Merges need two reviewers.", "Merges need one reviewer.", 3.8),
        ("I have 2 cats.", "I have 3 cats.", 3.8),
    ],
)
def test_opposites_and_other_amounts_may_be_changes_though_one_may_have_many(older, newer, nearness):
    assert judge(older, newer, nearness).verdict is not Verdict.UNRELATED


def test_what_a_partner_does_says_nothing_about_the_user():
    partner = "My partner is called Marco; he is a nurse."
    assert judge(partner, "I started a new job as a platform lead.", 0.4).verdict is Verdict.UNRELATED


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Version 2.4 supports PostgreSQL 14.", "Version 3.0 supports PostgreSQL 16."),
        ("Room 12 has a projector.", "Room 14 has a whiteboard."),
        ("I live in Hamburg.", "My brother lives in Leipzig."),
        ("Anna works at Acme.", "Bruno works at Globex."),
        ("I like tea.", "I also like coffee."),
        ("I speak German.", "I speak French too."),
        ("I live in Hamburg.", "I might move to Leipzig next year."),
        ("I moved to Leipzig last week.", "I moved the sofa to the bedroom."),
        ("Writer 5 keeps note number 2 about topic 838.", "Writer 2 keeps note number 5 about topic 595."),
    ],
)
def test_what_holds_beside_it_is_not_marked(older, newer):
    assert judge(older, newer, 2.0).verdict is not Verdict.REPLACES


def test_the_made_pairs_are_told_apart_without_a_vector():
    """By words alone, as without an embedder. With cosines, `python -m benchmarks.replaced` measures by folds."""
    pairs = read()
    assert len(pairs) >= 300
    verdicts = [(pair.replaced, judge(pair.older, pair.newer).verdict) for pair in pairs]
    first = [verdict is not Verdict.UNRELATED for replaced, verdict in verdicts if replaced]
    marked = [verdict is Verdict.REPLACES for replaced, verdict in verdicts if not replaced]
    assert sum(first) / len(first) >= 0.9
    assert sum(marked) / len(marked) <= 0.02


def test_it_says_what_speaks_for_it():
    found = judge("I live in Hamburg.", "I moved to Leipzig.", 1.5)
    assert {"changed", "once_changed"} <= {*found.because}
    assert 0.65 < found.probability < 1


def test_long_texts_are_not_judged():
    assert judge("I live in Hamburg. " * 40, "I moved to Leipzig.", 0.9).verdict is Verdict.UNRELATED


def test_time_grows_with_the_text():
    text = "no no no longer 1.2.3'4-5 a'a'a-a.a:a I moved "
    started = time.perf_counter()
    judge((text * 20)[:LONGEST], (text * 20)[1 : LONGEST + 1], 0.5)
    assert time.perf_counter() - started < 0.2


@pytest.mark.parametrize(
    "question",
    ["where did I use to live?", "where did I live before?", "what was my previous job", "Wo habe ich früher gewohnt?"],
)
def test_questions_about_what_was(question):
    assert asks_of_before(question)


@pytest.mark.parametrize("question", ["where do I live now?", "my job", "Wo wohne ich?", ""])
def test_other_questions(question):
    assert not asks_of_before(question)


@pytest.mark.parametrize("phrases", [CHANGED, NOW, ENDED, ADDING, PLANNED, FORMER])
def test_every_phrase_can_be_found(phrases):
    """Words for the user are replaced when a text is read, and stand in phrases all the same: "nuevo trabajo"."""
    every = [" ".join(phrase) for some in phrases.values() for phrase in some]
    assert [
        phrase for phrase in every if tuple(phrase.split()) not in _matching_phrases(_read(f"It {phrase} so."), phrases)
    ] == []
