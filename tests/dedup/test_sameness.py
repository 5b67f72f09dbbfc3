"""The one judgement of what says the same: keys, negations in several languages, numbers, names and signs."""

from __future__ import annotations

import pytest

from openmemory.dedup.paraphrases import Relation, compare
from openmemory.dedup.sameness import ComparedItem, item, sameness


def said(text: str, key: str | None = None, namespace: str = "shop") -> ComparedItem:
    return item(namespace, key, text)


def test_only_items_of_one_key_and_one_namespace_say_the_same() -> None:
    text = "The database port is 5433."
    assert sameness(said(text), said(text)).relation is Relation.SAME
    assert sameness(said(text, "db/port"), said(text, "db/port")).relation is Relation.SAME
    assert sameness(said(text, "db/port"), said(text)) == (None, "key")
    assert sameness(said(text, "db/port"), said(text, "web/port")) == (None, "key")
    assert sameness(said(text), said(text, namespace="default")) == (None, "namespace")


@pytest.mark.parametrize(
    ("one", "other", "because"),
    [
        ("The database port is 5434.", "The database port is 5433.", "number"),
        ("Hotfixes need approval, no exceptions.", "Hotfixes do *not* need approval.", "negation"),
        ("Deploys don't need a ticket.", "Deploys don't need a ticket, and don't need approval.", "negation"),
        ("Interns can merge into main.", "Interns can't merge into main.", "negation"),
        ("Interns can merge into main.", "Interns cannot merge into main.", "negation"),
        ("User likes tea but not coffee.", "User likes coffee but not tea.", "negation"),
        ("Die Garage ist offen, nicht der Keller.", "Der Keller ist offen, nicht die Garage.", "negation"),
        ("Der Antrag braucht eine Unterschrift.", "Der Antrag braucht keine Unterschrift.", "negation"),
        ("La reunión es obligatoria.", "La reunión no es obligatoria.", "negation"),
        ("Il faut une autorisation.", "Il ne faut pas une autorisation.", "negation"),
        ("C'est obligatoire.", "Ce n'est obligatoire.", "negation"),
        ("承認は必要です", "承認は必要ない", "negation"),
        ("需要批准", "不需要批准", "negation"),
        ("승인이 필요합니다", "승인이 필요하지 않습니다", "negation"),
        ("Нужна подпись.", "Не нужна подпись.", "negation"),
        ("My dentist is Dr. Keller.", "My dentist is Dr. Brandt.", "name"),
        ("Lena maintains the search service.", "Tom took over the search service from Lena.", "change"),
        ("Our CI runs on Jenkins.", "Our CI runs on GitHub Actions instead of Jenkins.", "change"),
    ],
)
def test_a_difference_is_seen_from_both_sides(one: str, other: str, because: str) -> None:
    assert compare(one, other) == (None, because)
    assert compare(other, one) == (None, because)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("User does not eat meat.", "User doesn't eat meat."),
        ("User eats no meat.", "User does not eat meat."),
        ("Deploys don't need a ticket.", "Deploys do not need a ticket."),
    ],
)
def test_the_same_negation_in_other_words_is_the_same(one: str, other: str) -> None:
    assert compare(one, other).relation is Relation.SAME
