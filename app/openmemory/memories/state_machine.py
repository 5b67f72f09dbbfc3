"""The allowed state transitions. No other module defines them."""

from __future__ import annotations

from openmemory.errors import ConflictError
from openmemory.memories.state import State

ALLOWED: dict[State, frozenset[State]] = {
    State.ACTIVE: frozenset({State.PAUSED, State.ARCHIVED, State.DELETED}),
    State.PAUSED: frozenset({State.ACTIVE, State.ARCHIVED, State.DELETED}),
    State.ARCHIVED: frozenset({State.ACTIVE, State.PAUSED, State.DELETED}),
    State.DELETED: frozenset({State.ACTIVE}),
}
"""Maps a state to the states that may follow it. A deleted memory must be restored before any other change."""


def sources(target: State) -> tuple[State, ...]:
    """The states from which a memory may become `target`."""
    return tuple(state for state, targets in ALLOWED.items() if target in targets)


def refuse(current: State, target: State) -> ConflictError:
    """The error for a transition that is not allowed."""
    valid = ", ".join(sorted(ALLOWED[current])) or "none"
    return ConflictError(
        f"A memory that is {current} cannot become {target}.",
        code="transition_not_allowed",
        hint=f"From {current} a memory can become: {valid}.",
    )
