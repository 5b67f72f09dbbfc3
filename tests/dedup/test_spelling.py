"""Texts with the same words, whose signs, symbols or case tell them apart, in all that decides what says the same."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.capture.answers import Edit
from openmemory.capture.decisions import decided
from openmemory.capture.schemas import PromptMemory
from openmemory.dedup.paraphrases import Relation, compare
from openmemory.dedup.spelling import spelling
from openmemory.memories.schemas import Event

APART = [
    ("Balance: 300", "Balance: -300"),
    ("p < 0.05", "p > 0.05"),
    ("+5 °C", "-5 °C"),
    ("Build ✅", "Build ❌"),
    ("a == b", "a != b"),
    ("Grade A+", "Grade A-"),
    ("rm -r", "rm -R"),
    ("See README", "See readme"),
    ("[0,1)", "(0,1]"),
    ("5 €", "5 £"),
    ("Mood 🚀", "Mood 🔥"),
    ("a → b", "a ← b"),
    ("a -> b", "a <- b"),
    ("10³", "103"),
    ("x² + 1", "x2 + 1"),
    ("a<b", "b<a"),
    ("✅ tests ❌ lint", "❌ tests ✅ lint"),
    ("Balance: (300)", "Balance: 300"),
    ("userId", "userid"),
    ("rm -Rf", "rm -rf"),
    ("5 mW", "5 MW"),
    ("Use .env", "Use env"),
    (".5", "5"),
    ("Mood :)", "Mood :("),
    ("- [x] ship", "- [ ] ship"),
    ("!enabled", "enabled"),
    ("a && b", "a || b"),
    ("C++", "C"),
    ("C#", "C++"),
    ("-5", "5"),
    ("–5", "5"),
    ("−5 m", "5 m"),
    ("½ cup", "¼ cup"),
    ("5 ₽", "5 ₴"),
    ("की", "का"),
    ("f(x)", "f[x]"),
    ("x ≤ 3", "x ≥ 3"),
    ("x ∈ A", "x ∉ A"),
    ("♂", "♀"),
    ("★★★", "★★"),
    ("5 - 3", "5 3"),
    ("The server is up.", "The server is up?"),
    ("a/b", "a-b"),
    ("US law", "us law"),
    ("{a}", "[a]"),
    ("5 ¢", "5 $"),
    ("pip install a>=2", "pip install a<=2"),
    ("a*b", "a+b"),
    ("5°C", "5°F"),
    ("5 °C", "5 °F"),
    ("5%", "5‰"),
    ("x = -y", "x = y"),
    ("-5 and 3", "5 and -3"),
    ("**kwargs", "kwargs"),
    ("~5 km", "5 km"),
    ("@alice", "alice"),
    ("git diff A..B", "git diff A...B"),
    ("10-20", "10+20"),
    ("6'", '6"'),
]
SAME = [
    ("I like tea.", "i  like tea!"),
    ("He said “tea”.", 'He said "tea"'),
    ("It’s fine", "It's fine"),
    ("a → b", "a -> b"),
    ("- Buy milk", "Buy milk"),
    ("**Bold** text", "Bold text"),
    ("# Title here", "Title here"),
    ("use `x` now", "use 'x' now"),
    ("wait… ok", "wait... ok"),
    ("The budget is 12,000 euros.", "The budget is €12000."),
    ("5 €", "€5"),
    ("5 percent", "5 %"),
    ("Lives in Rome (Italy)", "Lives in Rome, Italy"),
    ("10–20 km", "10-20 km"),
    ("word—word", "word - word"),
    ("−5 m", "-5 m"),
    ("Meet at 10 AM", "meet at 10 am"),
    ("Tom & Jerry", "Tom and Jerry"),
    ("a==b", "a == b"),
    ("✔️ done", "✔ done"),
    ("ＡＢ", "AB"),
    ("5 °C", "5°C"),
    ("well-known fact", "well known fact"),
    ("«oui»", "oui"),
    ("¿Qué?", "Qué?"),
    ("rm -r.", "rm -r"),
    ("m²", "m^2"),
]


@pytest.mark.parametrize(("old", "new"), APART)
def test_a_sign_tells_texts_apart_whichever_is_the_older(old: str, new: str):
    assert spelling(old) != spelling(new)
    assert compare(old, new).relation is None
    assert compare(new, old).relation is None


@pytest.mark.parametrize(("old", "new"), SAME)
def test_punctuation_quotes_and_plain_case_tell_nothing_apart(old: str, new: str):
    assert compare(old, new).relation is not None
    assert compare(new, old).relation is not None


@pytest.mark.parametrize(
    "more", ["The tests pass ❌ on Windows since Monday.", "The tests pass on Windows! ✅ Since Monday."]
)
def test_a_text_with_more_words_and_another_sign_does_not_complete_one(more: str):
    assert compare("The tests pass on Windows.", "The tests pass on Windows with Python.").relation is Relation.MORE
    assert compare("The tests pass on Windows.", more).relation is None


@given(st.text(max_size=100))
def test_every_text_is_spelled_as_it_is(text: str):
    assert spelling(text) == spelling(text)
    assert not spelling(text).differs(spelling(text))


@pytest.mark.parametrize(("old", "new"), [*APART[:11], *SAME[:3]])
def test_a_model_repeats_a_memory_only_with_its_signs(old: str, new: str):
    memory = PromptMemory(UUID(int=1), old, 1)
    found = decided([Edit("ADD", text=new)], [memory], datetime.now(UTC))
    assert [one.event for one in found.decisions] == [Event.ADD if (old, new) in APART else Event.NONE]
