from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import likeness
from openmemory.dedup.paraphrases import MIN_SIMILARITY, Relation, compare
from openmemory.embeddings.port import PACKAGED


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("I like tea.", "i  like tea!", Relation.SAME),
        ("The user is allergic to peanuts.", "User has a peanut allergy.", Relation.SAME),
        ("The budget is 12,000 euros.", "The budget is €12000.", Relation.SAME),
        ("The budget is $12,000.", "The budget is $12000.", Relation.SAME),
        ("Backups run for 10 minutes.", "Backups run for ten minutes.", Relation.SAME),
        ("User likes hiking.", "User likes hiking in the Alps with Maria.", Relation.MORE),
        ("User likes hiking in the Alps.", "User likes hiking.", Relation.SAME),
        ("User liked hiking.", "User likes hiking.", None),
        ("Wir nutzen Postgres.", "Wir nutzen nicht Postgres.", None),
        ("Elle habite à Lyon.", "Elle habite à Nantes.", None),
        ("用户喜欢咖啡", "用户喜欢茶", None),
    ],
)
def test_words_decide_what_vectors_do_not(old: str, new: str, relation: Relation | None):
    assert compare(old, new).relation is relation


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ("The timeout is 30 s.", "The timeout is 60 s.", "number"),
        ("The run is 10 km long.", "The run is 10 miles long.", "number"),
        ("We run version 1.2.3.", "We run version 1.2.4.", "number"),
        ("The user has two cats.", "The user has three cats.", "number"),
        ("Alice eats meat.", "Alice doesn't eat meat.", "negation"),
        ("Alice lives in Rome.", "Bob lives in Rome.", "name"),
        ("Read it from /etc/a.conf.", "Read it from /etc/b.conf.", "name"),
        ('Sign with "Best".', 'Sign with "Cheers".', "name"),
        ("Alice taught Bob.", "Bob taught Alice.", "name"),
        ("Bob lives in Rome.", "The user lives in Rome.", "name"),
        ("User drinks wine.", "User rarely drinks wine.", "limit"),
        ("User runs marathons.", "User hopes to run marathons.", "certainty"),
        ("Alice works at Acme.", "Alice used to work at Acme.", "time"),
        ("The shop is open on Sundays.", "On Sundays the shop is closed.", "opposite"),
        ("His wife works in Rome.", "He works in Rome.", "who"),
        ("User prefers tea over coffee.", "User prefers coffee over tea.", "order"),
        ("The dog bit the neighbour.", "The neighbour bit the dog.", "order"),
        ("User asked Sam for help.", "Sam asked the user for help.", "order"),
        ("Tabs in Python and spaces in C.", "Spaces in Python and tabs in C.", "order"),
        ("Deploy to staging, then to production.", "Deploy to production, then to staging.", "order"),
        ("The train to Berlin is late.", "The train from Berlin is late.", "order"),
        ("Alice likes tea.", "Bob likes tea and Alice likes coffee.", "name"),
        ("User collects stamps of Peru.", "User collects coins of Peru.", "word"),
    ],
)
def test_each_difference_is_named_whichever_text_is_the_older(old: str, new: str, because: str):
    assert compare(old, new) == (None, because)
    assert compare(new, old) == (None, because)


@given(st.text(max_size=200), st.text(max_size=200))
def test_any_text_is_judged_and_says_what_it_says(one: str, other: str):
    assert compare(one, one).relation is Relation.SAME
    compare(one, other)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", ["a_", "1-", "''", "A b. ", "x.", "//"])
def test_no_text_makes_the_patterns_backtrack_without_end(text: str):
    compare(text * 2_000, text * 2_000 + " and more")


@pytest.mark.slow
async def test_the_packaged_model_and_the_words_agree_with_those_who_labelled_the_pairs():
    lines = likeness.read()
    pairs = await likeness.measured(lines)
    assert len(pairs) >= 300
    least = MIN_SIMILARITY[PACKAGED]
    found = likeness.score(pairs, least)
    assert found.precision >= 0.97
    assert found.recall >= 0.5
    unseen = likeness.score(likeness.unseen(pairs), least)
    assert unseen.precision >= 0.95
    assert unseen.recall >= 0.4
    # Vectors alone would lose every other memory.
    assert likeness.score(pairs, least, words=False).precision < 0.7
