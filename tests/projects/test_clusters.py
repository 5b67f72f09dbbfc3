"""Clusters of a pack: memories that say the same, by the best of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import numpy as np
import pytest

from openmemory.projects.context import _clusters
from openmemory.search.schemas import SearchResult
from tests.projects.test_packing import NOW, _made

UP, NEAR, ASIDE = (1.0, 0.0), (0.9, 0.3), (0.0, 1.0)


def result(number: int, said: str | None = None, **more: Any) -> SearchResult:
    found: SearchResult = _made(
        SearchResult, id=UUID(int=number), memory=said or f"A fact{'.' * number}", created_at=NOW, score=0.5,
        app_name="a", **({"namespace": "shop", "kind": "memory"} | more),
    )  # fmt: skip
    return found


def vectors(*all_of_them: tuple[float, ...]) -> dict[UUID, bytes]:
    return {UUID(int=number): np.array(one, dtype="<f4").tobytes() for number, one in enumerate(all_of_them, 1)}


def test_the_best_stands_for_those_that_say_the_same() -> None:
    four = [result(number) for number in (1, 2, 3, 4)]
    assert _clusters(four, vectors(UP, NEAR, ASIDE, UP), 2) == {UUID(int=1): [UUID(int=2), UUID(int=4)]}


def test_what_is_flagged_or_of_another_project_stands_for_itself() -> None:
    both = vectors(UP, UP)
    assert _clusters([result(1, labels=["injection"]), result(2)], both, 2) == {}
    assert _clusters([result(1), result(2, labels=["injection"])], both, 2) == {}
    assert _clusters([result(1), result(2, namespace="default")], both, 2) == {}


def test_a_text_with_several_vectors_or_none_is_left_out() -> None:
    assert _clusters([result(1), result(2)], vectors((*UP, *UP), UP), 2) == {}
    assert _clusters([result(1), result(2)], vectors((0.0, 0.0), UP), 2) == {}
    assert _clusters([result(1), result(2)], {}, 0) == {}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Balance: 300", "Balance: -300"),
        ("Stock: 300", "Stock: 400"),
        ("Build ✅", "Build ❌"),
        ("Ann likes tea.", "Ann does not like tea."),
        ("Limit x > 5", "Limit x < 5"),
    ],
)
def test_no_memory_stands_for_one_that_contradicts_it(one: str, other: str) -> None:
    both = vectors(UP, UP, UP)
    found = _clusters([result(1, one), result(2, other), result(3, f"{other}.")], both, 2)
    assert found == {UUID(int=2): [UUID(int=3)]}


def test_a_value_is_never_left_out_for_a_memory() -> None:
    value = result(1, "db/port: 5433", kind="keyed", key="db/port")
    assert _clusters([result(2, "db/port: 5433"), value], vectors(UP, UP), 2) == {}


def test_the_one_that_says_more_stands_for_the_other() -> None:
    short, long = result(1, "The user likes tea."), result(2, "The user likes tea with milk.")
    assert _clusters([short, long, result(3, "The user likes tea!")], vectors(UP, UP, UP), 2) == {
        UUID(int=2): [UUID(int=1), UUID(int=3)]
    }
