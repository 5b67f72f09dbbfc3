"""Which changes of state are allowed: the only table of them."""

from __future__ import annotations

from openmemory.errors import Conflict
from openmemory.memories.models import State

ALLOWED: dict[State, frozenset[State]] = {
    State.ACTIVE: frozenset({State.PAUSED, State.ARCHIVED, State.DELETED}),
    State.PAUSED: frozenset({State.ACTIVE, State.ARCHIVED, State.DELETED}),
    State.ARCHIVED: frozenset({State.ACTIVE, State.PAUSED, State.DELETED}),
    State.DELETED: frozenset({State.ACTIVE}),
}
"""From a state to the states that may follow it. A deleted memory is restored before anything else is done with it."""


def sources(target: State) -> tuple[State, ...]:
    """The states from which `target` may be reached."""
    return tuple(state for state, targets in ALLOWED.items() if target in targets)


def refuse(current: State, target: State) -> Conflict:
    """The error for a change that the table does not allow."""
    valid = ", ".join(sorted(ALLOWED[current])) or "none"
    return Conflict(
        f"A memory that is {current} cannot become {target}.",
        code="transition_not_allowed",
        hint=f"From {current} a memory can become: {valid}.",
    )
