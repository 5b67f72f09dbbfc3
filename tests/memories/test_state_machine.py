import pytest

from openmemory.errors import ConflictError
from openmemory.memories.state import State
from openmemory.memories.state_machine import ALLOWED, refuse, sources


def test_every_state_has_its_row_and_leads_somewhere():
    assert set(ALLOWED) == set(State)
    assert all(ALLOWED.values())


def test_no_state_leads_to_itself():
    assert all(state not in targets for state, targets in ALLOWED.items())


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (State.ACTIVE, {State.PAUSED, State.ARCHIVED, State.DELETED}),
        (State.PAUSED, {State.ACTIVE, State.ARCHIVED}),
        (State.ARCHIVED, {State.ACTIVE, State.PAUSED}),
        (State.DELETED, {State.ACTIVE, State.PAUSED, State.ARCHIVED}),
    ],
)
def test_a_state_is_reached_only_from_those_that_allow_it(target: State, expected: set[State]):
    assert set(sources(target)) == expected


def test_a_refusal_names_both_states_and_what_would_be_allowed():
    error = refuse(State.DELETED, State.PAUSED)
    assert isinstance(error, ConflictError)
    assert "deleted" in error.message
    assert "paused" in error.message
    assert error.hint == "From deleted a memory can become: active."
