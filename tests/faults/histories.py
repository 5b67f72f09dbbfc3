"""Running state machines of random histories."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test


def live(machine: type[RuleBasedStateMachine], histories: int, steps: int, *, random: bool) -> None:
    """So many histories of at most so many steps: always the same, or `random` ones, which are shrunk if they fail."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            database=None,
            derandomize=not random,
            phases=[Phase.generate, Phase.shrink] if random else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
