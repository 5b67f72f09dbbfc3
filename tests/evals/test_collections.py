"""The judged collections of the evaluation: documents cut into fragments, and the measures of what was found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from benchmarks.collections import Collection, Document, Question, among_long, fragments, half_joined, measured, misses

START = datetime(2026, 3, 1, tzinfo=UTC)


def test_fragments_keep_the_speaker_and_the_thread_and_follow_each_other_in_order():
    documents = [
        Document("a", "Ann: I picked it up! You said it was good. [a photo]", "talk", "one", START),
        Document("b", "Bob: v1.5 is out", "talk", "one", START + timedelta(milliseconds=1)),
        Document("c", "No speaker. Two parts.", "talk", "two", START + timedelta(milliseconds=2)),
    ]
    cut = fragments(Collection("turns", documents, []))
    assert cut.name == "turns-fragments"
    assert [(one.id, one.text, one.thread) for one in cut.documents] == [
        ("a", "Ann: I picked it up!", "one"),
        ("a", "Ann: You said it was good.", "one"),
        ("a", "Ann: [a photo]", "one"),
        ("b", "Bob: v1.5 is out", "one"),
        ("c", "No speaker.", "two"),
        ("c", "Two parts.", "two"),
    ]
    times = [one.written for one in cut.documents]
    apart = [(after - before).total_seconds() for before, after in pairwise(times[:4])]
    assert apart == pytest.approx([5, 5, 65], abs=0.01)


def conversations() -> Collection:
    documents = [
        Document(f"{name}{thread}{n}", f"{name} {thread} {n}", name, thread, START)
        for name in ("a", "b")
        for thread in ("x", "y", "z")
        for n in range(2)
    ]
    return Collection("turns", documents, [Question("q", "?", "a", "", frozenset({"ax1", "ay0", "ay1"}))])


def test_every_second_thread_is_one_document_that_answers_what_its_parts_answer():
    joined = half_joined(conversations())
    of_a = [(one.id, one.text, one.thread) for one in joined.documents if one.namespace == "a"]
    assert of_a == [
        ("ax0", "a x 0", "x"), ("ax1", "a x 1", "x"), ("ay0", "a y 0\na y 1", None),
        ("az0", "a z 0", "z"), ("az1", "a z 1", "z"),
    ]  # fmt: skip
    assert joined.questions[0].relevant == {"ax1", "ay0"}


def test_the_threads_of_other_namespaces_are_long_documents_that_answer_nothing():
    whole = conversations()
    among = among_long(whole)
    added = [one for one in among.documents if one not in whole.documents]
    assert [(one.id, one.text, one.namespace) for one in added if one.namespace == "a"] == [
        ("a bx0", "b x 0\nb x 1", "a"), ("a by0", "b y 0\nb y 1", "a"), ("a bz0", "b z 0\nb z 1", "a"),
    ]  # fmt: skip
    assert among.questions == whole.questions


def test_what_stands_before_the_first_answer_is_counted():
    assert [misses(found, frozenset("ab")) for found in ("axb", "xyb", "xy", "")] == [0, 2, 2, 0]


def test_a_document_that_is_found_twice_counts_once_and_takes_two_places():
    found = measured(["a", "a", "x", "y", "z", "b"], frozenset({"a", "b"}))
    assert (found["recall@5"], found["recall@10"], found["MRR@10"]) == (0.5, 1.0, 1.0)
    assert found["all@10"] == 1.0
