"""Which categories a memory belongs to: the rules of choosing, and how often they are right with the packaged model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.categories import Case, cases, figures, measure
from openmemory.categories import assignment, classifier
from openmemory.categories.classifier import Choice
from openmemory.categories.taxonomy import NAMES, SUBJECTS, Subject, described
from openmemory.config.sections import CategorySettings
from openmemory.embeddings.local import LocalEmbedder

OWN = Path(__file__).parent / "own_categories.jsonl"
TOYS = (Subject("a", "x", ("y",)), Subject("b", "z"), Subject("c", "w"))


def toy_vectors() -> classifier.Matrix:
    return np.eye(4, dtype=np.float32)


def toys() -> classifier.CategoryVectors:
    known = classifier.build_vectors(TOYS, toy_vectors())
    return known._replace(usual=0.0, spread=0.2)


def test_the_categories_of_openmemory_are_told_apart():
    assert len(set(NAMES)) == len(SUBJECTS) == 20
    assert all(subject.name == subject.name.lower() and len(subject.examples) >= 8 for subject in SUBJECTS)
    phrases = [phrase for subject in SUBJECTS for phrase in subject.phrases]
    assert len(set(phrases)) == len(phrases)


def test_the_nearest_category_is_chosen_and_what_is_near_to_none_gets_none():
    known = toys()
    near_b = np.array([[0, 0.1, 0.99, 0.1]], dtype=np.float32)
    [row] = classifier.confidences(near_b, ["?"], known)
    assert [choice.name for choice in classifier.choose(row, known, threshold=0.5, most=2)] == ["b"]
    nowhere = np.array([[0.1, 0.1, 0.1, 0.1]], dtype=np.float32)
    [row] = classifier.confidences(nowhere, ["?"], known)
    assert classifier.choose(row, known, threshold=0.5, most=2) == []


def test_what_is_about_two_things_gets_both_and_never_more_than_wanted():
    known = toys()
    both = np.array([[0, 0, 0.707, 0.707]], dtype=np.float32)
    [row] = classifier.confidences(both, ["?"], known)
    assert {choice.name for choice in classifier.choose(row, known, threshold=0.4, most=2)} == {"b", "c"}
    assert len(classifier.choose(row, known, threshold=0.4, most=1)) == 1
    assert classifier.choose(row, known, threshold=0.999, most=5) == []


def test_words_add_to_what_the_vector_says():
    subjects = (Subject("a", "x", ("y",)), Subject("b", "z", (), re.compile("alpaca")), Subject("c", "w"))
    known = classifier.build_vectors(subjects, toy_vectors())._replace(usual=0.0, spread=0.2)
    vague = np.array([[0.0, 0.0, 0.3, 0.3]], dtype=np.float32)
    without, with_word = classifier.confidences(np.vstack([vague, vague]), ["nothing", "an alpaca"], known)
    assert with_word[1] > without[1]
    assert with_word[2] < without[2]


def test_confidences_leave_room_for_nothing_at_all():
    known = toys()
    vectors = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sure = classifier.confidences(vectors, ["?"] * 50, known)
    assert ((sure >= 0) & (sure <= 1)).all()
    assert (sure.sum(axis=1) < 1).all()
    for row in sure:
        for choice in classifier.choose(row, known, threshold=0.1, most=3):
            assert isinstance(choice, Choice)
            assert 0.1 <= choice.confidence <= 1


def test_a_long_text_is_what_its_windows_say_together():
    chunks = np.array([[1, 0, 0, 0], [0, 1, 0, 0]], dtype=np.float32)
    assert classifier.of_chunks(chunks) == pytest.approx([2**-0.5, 2**-0.5, 0, 0])


def test_vectors_must_be_those_of_the_phrases():
    with pytest.raises(ValueError, match="3 categories with 4 phrases, 3 vectors"):
        classifier.build_vectors(TOYS, toy_vectors()[:3])
    with pytest.raises(ValueError, match="1 categories"):
        classifier.build_vectors(TOYS[:1], toy_vectors()[:2])


@pytest.mark.slow
async def test_assigned_categories_are_right_on_the_labelled_set():
    labelled = cases()
    assert len(labelled) >= 200
    assert {name for case in labelled for name in case.right} == set(NAMES)
    embedder = LocalEmbedder()
    try:
        measured = await measure(embedder, labelled)
    finally:
        await embedder.close()
    found = figures(measured, labelled, CategorySettings())
    assert found.accuracy >= 0.83
    assert found.precision >= 0.91
    assert found.without <= 0.5
    assert found.silent >= 0.9


def test_what_somebody_writes_of_a_category_is_phrases_and_words():
    first = "Keeping bees: hives, honey;  young   queens, boxes, whatever the bees may need."
    bees = described("beekeeping", f"{first}\n\n I ate honey ")
    assert bees.description == f"{first} I ate honey"
    assert bees.examples == (first, "I ate honey")
    assert bees.words is not None
    for text in ("One hive", "HIVES!", "a young queen's", "Beekeeping is fun", "we are keeping bees", "a box"):
        assert bees.words.search(text), text
    for text in ("archives", "the queen", "HIV", "whatever the bees may need", "honeymoon"):
        assert not bees.words.search(text), text
    assert described("x", "(a+)+$ and more of the same").words is None
    assert described("R&D", "c++, .*").words.fullmatch("C++")  # type: ignore[union-attr]
    assert described("x", "Kurz").examples == ()


@pytest.mark.slow
async def test_own_categories_are_assigned_rightly_and_take_little_from_the_others():
    own = [json.loads(line) for line in OWN.read_text(encoding="utf-8").splitlines()]
    labelled = [*cases(), *(Case(text, (each["name"],)) for each in own for text in each["memories"])]
    embedder = LocalEmbedder()
    try:
        common = await assignment.learned(embedder, SUBJECTS, None)
        subjects = (*SUBJECTS, *(described(each["name"], each["description"]) for each in own))
        known = await assignment.learned(embedder, subjects, common)
        texts = await embedder.documents([case.text for case in labelled])
    finally:
        await embedder.close()
    assert (known.usual, known.spread) == (common.usual, common.spread)
    vectors = np.stack([classifier.of_chunks(each.chunks) for each in texts])
    sure = classifier.confidences(vectors, [case.text for case in labelled], known)
    settings, names = CategorySettings(), {each["name"] for each in own}
    chosen = [
        {each.name for each in classifier.choose(row, known, threshold=settings.threshold, most=settings.most)}
        for row in sure
    ]
    mine = [(found & names, case.right) for found, case in zip(chosen, labelled, strict=True) if found & names]
    assert sum(bool(found & set(right)) for found, right in mine) >= 12
    assert sum(not found & set(right) for found, right in mine) <= 2
    common_ones = [(found - names, set(case.right)) for found, case in zip(chosen, labelled, strict=True)]
    assert sum(len(found & right) for found, right in common_ones) >= 110
