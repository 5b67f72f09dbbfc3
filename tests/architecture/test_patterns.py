"""Texts from outside cost time in proportion to their length: every expression, and what reads texts with several."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from openmemory.content_policy import injection, secrets
from openmemory.dedup import key_values
from openmemory.dedup.spelling import spelling
from openmemory.projects import tokens
from openmemory.search.query import periods
from openmemory.search.query.text import lexemes, quoted
from openmemory.sources.cutting import pieces
from openmemory.sources.symbols import symbols
from tests import patterns
from tests.pumping import LIMIT, Pump, worst

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PARTS = 12
"""The number of tests that share the expressions, so that they run side by side."""

READERS: dict[str, Callable[[str], object]] = {
    "markdown": lambda text: pieces(text, "markdown"),
    "code": lambda text: pieces(text, "python"),
    "paragraphs": lambda text: pieces(text, None),
    "symbols": lambda text: symbols(text, text[:300]),
    "secrets": secrets.find,
    "injections": injection.instructs,
    "key-value facts": key_values.parsed,
    "spelling": spelling,
    "tokens": tokens.count,
    "phrases of a query": quoted,
    "lexemes of a query": lexemes,
    "times of a query": lambda text: periods.read(text, datetime.now(UTC)),
}
UNITS = [
    " ", "\n", "\t", "a", "A", "0", "-", "# ", "a b ", "a=", '"', "'", "`", "(", "[", "{", "<", "```\n", "\n# a", "eyJ",
    "://", "a.", "a@", "x=1|", "Aa ", "é", "中", "key: ", "1,000", "-----BEGIN ", "/*", "def f(", "    a\n",
    "\r", "\U000e0020", "ignore ", "password=", "bearer ", "sk-", "_", "*", "since ", "  b\n\n", " \n\n", "you are ",
    "2024-01-01 ", "“",
]  # fmt: skip


def _slow(used: patterns.Used) -> dict[str, str]:
    """The methods that take more than linear time, with the text that shows it."""
    grown = {f"{used.name}.{method}": growth for method, growth in used.growths()}
    return {name: f"×{growth.factor:.2f}: {growth.pump}" for name, growth in grown.items() if growth.factor > LIMIT}


@pytest.mark.parametrize(
    ("expression", "method"),
    [
        (r"(#{1,6})\s+(.+?)\s*#*\s*", "fullmatch"),
        (r"\s+$", "search"),
        (r"<r>(?s:.*?)</r>", "finditer"),
        (r"(?:a+)+b", "match"),
        (r"“([^”]+)”", "finditer"),
        (r"\w*[a-z]\w*[A-Z]", "search"),
    ],
)
def test_texts_that_are_derived_from_a_slow_expression_show_that_it_is(expression: str, method: str) -> None:
    assert _slow(patterns.Used("slow", re.compile(expression), frozenset({method})))


@pytest.mark.parametrize(
    ("expression", "methods"),
    [
        (r"[ \t]*+(`{3,}|~{3,})", {"match"}),  # a search would begin again at each blank
        (r'"(?:[^"\\]++|\\.)*+"?', {"search", "match"}),
        (r"(?<!\w)[a-z]\w*", {"search", "match"}),
    ],
)
def test_a_linear_expression_is_not_blamed(expression: str, methods: set[str]) -> None:
    assert not _slow(patterns.Used("linear", re.compile(expression), frozenset(methods)))


@pytest.mark.parametrize("part", range(PARTS))
def test_the_time_of_every_expression_is_linear_in_the_text(part: int) -> None:
    every = patterns.every()
    assert {"openmemory.sources.cutting._FENCE", "openmemory.connect.jsonc._COMMENT"} <= {used.name for used in every}
    slow = {name: text for used in every[part::PARTS] for name, text in _slow(used).items()}
    assert slow == {}


@pytest.mark.parametrize("reader", READERS)
def test_what_reads_a_text_takes_linear_time(reader: str) -> None:
    starts, ends = ("", "# a", "password: "), ("", " \0", "\n!")
    found = worst(READERS[reader], [Pump(start, unit, end) for start in starts for unit in UNITS for end in ends])
    assert found.factor <= LIMIT, found.pump
