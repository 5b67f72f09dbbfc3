"""Contradictions of a pack: between its state and memories, values and memories, and two memories."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from openmemory.projects.contradictions import Contradiction, contradictions, corrections
from openmemory.projects.schemas import ProjectState
from openmemory.search.schemas import SearchResult
from tests.projects.test_packing import NOW, _made

ONE, TWO, THREE = (UUID(int=number) for number in (1, 2, 3))


def memory(id_: UUID, text: str, days: int, **more: Any) -> SearchResult:
    at = NOW - timedelta(days=days)
    given = {"namespace": "shop", "kind": "memory", "created_at": at, "updated_at": at} | more
    found: SearchResult = _made(SearchResult, id=id_, memory=text, **given)
    return found


def state(value: dict[str, Any], days: int) -> ProjectState:
    at = NOW - timedelta(days=days)
    found: ProjectState = _made(ProjectState, id=UUID(int=9), state=value, updated_at=at, revision=1)
    return found


def sides(found: list[Contradiction]) -> list[tuple[str, UUID | None, str | None, UUID | None, str | None]]:
    return [(one.about, *one.newer[:2], *one.older[:2]) for one in found]


def test_a_note_with_title_and_summary_contradicts_the_state() -> None:
    note = memory(ONE, "The port of the database\nport=5434\nbecause of pgbouncer", 1, kind="note")
    sentence = memory(TWO, "A decision\nThe database port is 5434.", 9, kind="note")
    found = contradictions([note, sentence], state({"database": {"port": 5433}}, 5))
    assert sides(found) == [
        ("database.port", ONE, "5434", None, "5433"),
        ("database.port", None, "5433", TWO, "5434"),
    ]
    assert corrections(found) == {}


def test_a_memory_that_agrees_with_one_leaf_does_not_contradict_another() -> None:
    kept = {"database": {"port": 5433}, "web": {"port": 8080}}
    assert contradictions([memory(ONE, "port=8080", 1)], state(kept, 5)) == []
    [found] = contradictions([memory(ONE, "web.port=8000", 1)], state(kept, 5))
    assert found.about == "web.port"


def test_a_value_contradicts_a_memory_whichever_is_newer() -> None:
    older = memory(ONE, "The database port is 5434.", 9)
    value = memory(TWO, "db/port: 5433", 9, kind="keyed", key="db/port", updated_at=NOW)
    assert sides(contradictions([older, value], None)) == [("db.port", TWO, "5433", ONE, "5434")]
    newer = memory(ONE, "The database port is 5434.", -1)
    found = contradictions([value, newer], None)
    assert sides(found) == [("The database port", ONE, "5434", TWO, "5433")]
    assert corrections(found) == {TWO: ONE}


def test_the_newest_of_several_corrects_all_others() -> None:
    said = [memory(id_, f"port={port}", days) for id_, port, days in ((ONE, 1, 3), (TWO, 2, 1), (THREE, 3, 2))]
    assert corrections(contradictions(said, None)) == {ONE: TWO, THREE: TWO}


def test_flagged_memories_and_other_projects_contradict_nothing() -> None:
    older = memory(ONE, "The port is 5434.", 9)
    assert contradictions([older, memory(TWO, "The port is 1.", 1, labels=["injection"])], None) == []
    assert contradictions([older, memory(TWO, "The port is 1.", 1, namespace="default")], None) == []


def test_a_pair_is_named_once() -> None:
    found = contradictions([memory(ONE, "The port is 5434.", 9), memory(TWO, "The port is 5433.", 1)], None)
    assert sides(found) == [("The port", TWO, "5433", ONE, "5434")]
    [other] = contradictions(
        [memory(ONE, "Hotfixes need approval.", 9), memory(TWO, "Hotfixes need no approval.", 1)], None
    )
    assert (other.about, other.newer.memory_id, other.newer.value) == ("negation", TWO, None)
