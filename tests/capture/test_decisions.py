"""What is done of what a language model wants, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from openmemory.capture.answers import MAX_OPERATIONS, Edit
from openmemory.capture.decisions import decided
from openmemory.capture.schemas import ModelDecisions, PromptMemory
from openmemory.memories.schemas import Event

NOW = datetime(2026, 11, 22, tzinfo=UTC)
LISBON = PromptMemory(UUID(int=1), "Alice lives in Lisbon.", 1)
PORTO = PromptMemory(UUID(int=2), "Alice lives in Porto.", 4)


def run(*operations: Edit, orders: bool = False) -> ModelDecisions:
    return decided(operations, [LISBON, PORTO], NOW, orders=orders)


def events(found: ModelDecisions) -> list[tuple[Event, UUID | None, str]]:
    return [(one.event, one.memory.id if one.memory else None, one.text) for one in found.decisions]


def reasons(found: ModelDecisions) -> list[str]:
    return [one.reason for one in found.refused]


def test_every_operation_becomes_a_decision() -> None:
    found = run(
        Edit("ADD", text="Alice has a cat.", categories=("a", "b", "c", "d"), kind="fact", importance=7),
        Edit("UPDATE", 2, "Alice lives in Porto, near the river."),
    )
    assert events(found) == [
        (Event.ADD, None, "Alice has a cat."), (Event.UPDATE, PORTO.id, "Alice lives in Porto, near the river."),
    ]  # fmt: skip
    assert (found.decisions[0].categories, found.decisions[0].kind) == (("a", "b", "c"), "fact")
    assert events(run(Edit("SUPERSEDE", 1, "Alice lives in Rome."), Edit("DELETE", 2))) == [
        (Event.SUPERSEDE, LISBON.id, "Alice lives in Rome."), (Event.DELETE, PORTO.id, ""),
    ]  # fmt: skip
    assert events(run(Edit("NONE", 1))) == [(Event.NONE, LISBON.id, LISBON.content)]


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (Edit("UPDATE", 3, "x"), "unknown_id"),
        (Edit("UPDATE", 0, "x"), "unknown_id"),
        (Edit("DELETE", -1), "unknown_id"),
        (Edit("SUPERSEDE", None, "x"), "unknown_id"),
        (Edit("ADD"), "invalid"),
        (Edit("UPDATE", 1), "invalid"),
        (Edit("", 1, "x"), "invalid"),
        (Edit("ADD", text="alice lives in  lisbon"), "repeats"),
        (Edit("UPDATE", 1, "Alice lives in Porto"), "repeats"),
        (Edit("UPDATE", 1, "alice lives in Lisbon!"), "repeats"),
        (Edit("NONE", text="Hello!", reason="junk"), "junk"),
        (Edit("NONE", text="the password is x", reason="secret"), "secret"),
        (Edit("NONE", reason="small talk"), "junk"),
    ],
)
def test_what_is_refused_says_why(operation: Edit, reason: str) -> None:
    found = run(operation)
    assert reasons(found) == [reason]
    assert all(one.event is Event.NONE for one in found.decisions)
    assert found.refused[0].detail
    assert reason != "secret" or found.refused[0].memory is None


def test_a_memory_is_changed_once() -> None:
    found = run(
        Edit("UPDATE", 1, "a"),
        Edit("DELETE", 1),
        Edit("ADD", text="b"),
        Edit("ADD", text="B."),
    )
    assert [one.event for one in found.decisions] == [Event.UPDATE, Event.ADD]
    assert reasons(found) == ["repeated_id", "repeats"]


def test_what_holds_now_may_be_remembered_already() -> None:
    assert events(run(Edit("SUPERSEDE", 1, "Alice lives in Porto."))) == [
        (Event.SUPERSEDE, LISBON.id, "Alice lives in Porto.")
    ]


def test_what_reads_like_orders_changes_nothing_that_is_there() -> None:
    found = run(
        Edit("DELETE", 1),
        Edit("UPDATE", 2, "x"),
        Edit("ADD", text="Bob likes tea."),
        orders=True,
    )
    assert events(found) == [(Event.ADD, None, "Bob likes tea.")]
    assert reasons(found) == ["injection", "injection"]


def test_fields_out_of_range_are_brought_into_it() -> None:
    over, to_come = NOW - timedelta(days=1), NOW + timedelta(days=1)

    def one(**more: Any) -> Any:
        return run(Edit("ADD", text="x", **more)).decisions[0]

    assert [one(importance=number).importance for number in (-5, 0, 1, 10, 99)] == [1, 1, 1, 10, 10]
    assert one(kind="nonsense").kind is None
    assert one(until=over).until is None, "it would be hidden, and so lost"
    assert one(until=to_come).until == to_come


def test_too_many_operations_are_told() -> None:
    found = run(*(Edit("ADD", text=f"fact {number}") for number in range(MAX_OPERATIONS + 1)))
    assert len(found.decisions) == MAX_OPERATIONS
    assert reasons(found) == ["too_many"]
