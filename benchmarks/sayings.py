"""What is said to both systems in `benchmarks.extraction`, what is in it, and how the model fails meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.llm.server import Answer


@dataclass(frozen=True)
class Said:
    """A text and the facts in it. `replaces`: a fact that holds no longer; `change`: the same told as a change.

    `failures`: what the model answers the first times that it is asked about this text.
    """

    text: str
    facts: tuple[str, ...]
    replaces: str = ""
    change: str = ""
    failures: tuple[Answer, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """What one user says, in order. `holds`: what is true in the end."""

    name: str
    said: tuple[Said, ...]

    @property
    def holds(self) -> list[str]:
        """The facts that are true in the end, each once."""
        gone = {each.replaces for each in self.said}
        return list(dict.fromkeys(fact for each in self.said for fact in each.facts if fact not in gone))


_FACTS: tuple[tuple[str, ...], ...] = (
    ("I have two children, Nora and Emil.", "User has two children, Nora and Emil."),
    ("I can't eat peanuts, I'm allergic.", "User is allergic to peanuts."),
    ("At work we write everything in Rust these days.", "User's team writes everything in Rust."),
    ("I run ten kilometres every Saturday morning.", "User runs ten kilometres every Saturday morning."),
    ("My sister Ines is a vet in Braga.", "User's sister Ines is a vet in Braga."),
    (
        "I play the cello, and I sing in the cathedral choir.",
        "User plays the cello.",
        "User sings in the cathedral choir.",
    ),
    ("Please always answer me in short sentences.", "User wants answers in short sentences."),
    ("Our release train leaves every second Tuesday.", "User's team releases every second Tuesday."),
    ("I drive a 1998 Saab 900.", "User drives a 1998 Saab 900."),
    ("I don't drink coffee, only green tea.", "User drinks green tea and no coffee."),
    ("My boss is called Hendrik Vos.", "User's boss is Hendrik Vos."),
    ("We host everything at Hetzner in Falkenstein.", "User's team hosts everything at Hetzner in Falkenstein."),
    ("I'm learning Japanese with a tutor on Mondays.", "User learns Japanese with a tutor on Mondays."),
    ("My cat Mia is fourteen years old.", "User has a cat, Mia, who is fourteen years old."),
    ("I studied physics in Coimbra.", "User studied physics in Coimbra."),
    ("I'm colour-blind, red and green look the same.", "User cannot tell red from green."),
    ("I prefer tabs over spaces.", "User prefers tabs over spaces."),
    ("In March I had my left knee operated on.", "User's left knee was operated on in March."),
    ("I keep bees on the roof.", "User keeps bees on the roof."),
    ("My favourite author is Clarice Lispector.", "User's favourite author is Clarice Lispector."),
)
FACTS = tuple(Said(text, tuple(facts)) for text, *facts in _FACTS)

LISBON = "User lives in Lisbon."
CONTRADICTION = (
    Said("I live in Lisbon, by the way.", (LISBON,)),
    Said(
        "I have moved to Porto last week.",
        ("User lives in Porto.",),
        replaces=LISBON,
        change="User moved from Lisbon to Porto and lives in Porto.",
    ),
)

BROKEN = Answer("{")
"""Stands for the first half of the answer that would be right."""

EMPTY = Answer("")
REFUSAL = Answer(None, refusal="I cannot help with that.")
DOWN = Answer("the server had an error", status=500)
BUSY = Answer("too many requests", status=429, headers={"Retry-After": "1"})


def scenarios(facts: int) -> list[Scenario]:
    """Every scenario; `facts`: texts of the first."""

    def about(number: int, *failures: Answer) -> Said:
        each = FACTS[number]
        return Said(each.text, each.facts, failures=failures)

    return [
        Scenario("facts", FACTS[:facts]),
        Scenario("contradiction", CONTRADICTION),
        Scenario("sent again", (FACTS[0], FACTS[0])),
        Scenario("garbage once", (about(1, BROKEN), about(2, EMPTY), about(3, REFUSAL))),
        Scenario("garbage thrice", (about(4, BROKEN, EMPTY, REFUSAL),)),
        Scenario("500 and 429", (about(5, DOWN), about(6, BUSY))),
        Scenario("outage", (about(7, DOWN, DOWN, DOWN),)),
    ]


def lost(holds: Sequence[str], said: Sequence[Said], stored: Sequence[str]) -> list[str]:
    """Facts that hold and that nothing stored says."""
    told = set(stored) | {fact for each in said if each.change in stored for fact in each.facts}
    return [fact for fact in holds if fact not in told]


def stale(said: Sequence[Said], stored: Sequence[str]) -> list[str]:
    """What is stored as if it held still."""
    return [text for text in stored if text in {each.replaces for each in said}]
