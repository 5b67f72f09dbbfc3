"""Statements of texts, and which of them contradict each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.dedup.paraphrases import ComparedText
from openmemory.dedup.statements import StatedValue, same_but, statements, under_key


def keyed(path: str, value: str) -> StatedValue:
    found = under_key(path.split("."), value, value)
    assert found is not None
    return found


def contradicts(one: StatedValue, text: str) -> bool:
    return any(one.contradicts(other) for other in statements(text))


@pytest.mark.parametrize(
    "text",
    [
        "The database port is 5434.",
        "Database port: 5434",
        "The db port has changed to 5434, since May.",
        "port=5434",
        "port=5434 | host=a",
        "The port of the pool\nport=5434\nbecause of pgbouncer",
        "We have decided.\nThe database port is 5434. It was high time.",
    ],
)
def test_a_value_contradicts_what_gives_its_key_another_value(text: str) -> None:
    assert contradicts(keyed("db.port", "5433"), text)
    assert not contradicts(keyed("db.port", "5434"), text)
    assert not contradicts(keyed("web.proxy", "5433"), text)


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        ("db.port", "5433", "The staging database port is 5434."),  # another one
        ("db.port", "5433", "The database port may become 5434."),  # a plan
        ("db.port", "5433", "Is the database port 5434?"),
        ("db.port", "5433", "The database port was 5434."),  # the past
        ("team.lead", "Zoe", "The team lead is responsible for hiring."),
        ("team.lead", "Zoe", "The team lead is Zoe Miller."),
        ("stack.database", "PostgreSQL 17, because of its row locks.", "The stack database is PostgreSQL."),
        ("caroline", "x", "Caroline: Thanks, Mel!"),
    ],
)
def test_what_is_about_something_else_does_not_contradict_a_value(path: str, value: str, text: str) -> None:
    assert not contradicts(keyed(path, value), text)


@pytest.mark.parametrize(
    ("one", "other", "about"),
    [
        ("The pool holds 50 connections.", "The pool holds 80 connections.", "number"),
        ("Timeout: 30 seconds", "Timeout: 60 seconds", "number"),
        ("Room 3 has 5 seats.", "Room 3 has 8 seats.", "number"),
        ("The shop opens at nine.", "The shop opens at ten.", "number"),
        ("Die Probezeit dauert 3 Monate.", "Die Probezeit dauert 6 Monate.", "number"),
        ("We deploy on Tuesdays.", "We deploy on Fridays.", "opposite"),
        ("Hotfixes need approval, no exceptions.", "Hotfixes do *not* need approval.", "negation"),
        ("Interns can merge into main.", "Interns can't merge into main.", "negation"),
        ("We support Internet Explorer.", "We no longer support Internet Explorer.", "negation"),
        ("Der Antrag braucht eine Unterschrift.", "Der Antrag braucht keine Unterschrift.", "negation"),
        ("El despliegue necesita aprobación.", "El despliegue no necesita aprobación.", "negation"),
        ("Il faut une autorisation pour le parking.", "Il ne faut pas d'autorisation pour le parking.", "negation"),
        ("承認は必要です。", "承認は必要ない。", "negation"),
        ("Room 3 has 5 seats.", "Room 4 has 5 seats.", ""),
        ("Version 2.4 supports TLS.", "Version 3.0 supports TLS.", ""),
        ("I ran 5 km today.", "I ran 7 km today.", ""),
        ("Alice likes tea.", "Bob likes tea.", ""),
        ("Alice likes tea.", "Bob does not like tea.", ""),
        ("The outbox delivers every entry.", "The index does not have every entry.", ""),
    ],
)
def test_two_sentences_contradict_each_other_by_one_thing(one: str, other: str, about: str) -> None:
    assert same_but(ComparedText(one), ComparedText(other)) == about
    assert same_but(ComparedText(other), ComparedText(one)) == about


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_can_be_read_and_does_not_contradict_itself(one: str, other: str) -> None:
    assert same_but(ComparedText(one), ComparedText(one)) == ""
    same_but(ComparedText(one), ComparedText(other))
    for statement in statements(one):
        assert not statement.contradicts(statement)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["The a is 1. ", "a: ", "is ", "Dr. ", "not ", "ない", "a=1|"])
def test_long_texts_are_read_in_little_time(text: str) -> None:
    list(statements(text * 5_000))
    ComparedText(text * 2_000).negations.differ(ComparedText(text * 2_001).negations)
