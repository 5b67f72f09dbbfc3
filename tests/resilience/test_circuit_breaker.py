"""The circuit breaker, driven by a clock that the test turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from openmemory.resilience.circuit_breaker import BreakerState, CircuitBreaker, CircuitOpen


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def answer() -> str:
    return "ok"


async def fail() -> str:
    raise ConnectionError("down")


async def call(breaker: CircuitBreaker, function: Callable[[], Awaitable[object]]) -> object:
    """Await `function()` under the guard."""
    async with breaker.guard():
        return await function()


# What happens in order, and the state after it. f: a failure, a: an answer, r: a refused call, digit: seconds pass.
@pytest.mark.parametrize(
    ("events", "state"),
    [
        ("", BreakerState.CLOSED),
        ("ff", BreakerState.CLOSED),
        ("fff", BreakerState.OPEN),
        ("ffaff", BreakerState.CLOSED),  # only failures in a row count
        ("ffafff", BreakerState.OPEN),
        ("fffrr", BreakerState.OPEN),
        ("fff4r", BreakerState.OPEN),
        ("fff5", BreakerState.HALF_OPEN),
        ("fff5a", BreakerState.CLOSED),
        ("fff5f", BreakerState.OPEN),  # one failed probe suffices
        ("fff5f4r", BreakerState.OPEN),  # and the wait starts anew
        ("fff5f5a", BreakerState.CLOSED),
        ("fff5aff", BreakerState.CLOSED),  # a closed circuit forgets its past
        ("fff5afff", BreakerState.OPEN),
    ],
)
async def test_the_state_follows_from_what_happened(events: str, state: BreakerState) -> None:
    clock = Clock()
    breaker = CircuitBreaker("qdrant", failures=3, reset_after=5.0, clock=clock)
    for event in events:
        if event == "a":
            assert await call(breaker, answer) == "ok"
        elif event == "f":
            with pytest.raises(ConnectionError):
                await call(breaker, fail)
        elif event == "r":
            with pytest.raises(CircuitOpen):
                await call(breaker, answer)
        else:
            clock.now += float(event)
    assert breaker.state is state


async def opened(clock: Clock) -> CircuitBreaker:
    breaker = CircuitBreaker("qdrant", failures=1, reset_after=5.0, clock=clock)
    with pytest.raises(ConnectionError):
        await call(breaker, fail)
    return breaker


async def test_an_open_circuit_says_when_to_come_back_and_runs_nothing() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.now += 2
    ran = False
    with pytest.raises(CircuitOpen, match=r"qdrant .* 3\.0 s") as refused:
        async with breaker.guard():
            ran = True
    assert refused.value.retry_after == pytest.approx(3.0)
    assert not ran


async def test_only_one_probe_goes_through_a_half_open_circuit() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.now += 5
    async with breaker.guard():
        with pytest.raises(CircuitOpen):
            await call(breaker, answer)
    assert breaker.state is BreakerState.CLOSED


async def test_a_cancelled_probe_leaves_the_place_to_the_next() -> None:
    clock = Clock()
    breaker = await opened(clock)
    clock.now += 5
    probe = asyncio.create_task(call(breaker, asyncio.Event().wait))
    await asyncio.sleep(0)
    probe.cancel()
    with pytest.raises(asyncio.CancelledError):
        await probe
    assert breaker.state is BreakerState.HALF_OPEN
    assert await call(breaker, answer) == "ok"
    assert breaker.state is BreakerState.CLOSED


async def test_cancelled_callers_do_not_open_the_circuit() -> None:
    breaker = CircuitBreaker("qdrant", failures=1, clock=Clock())
    hanging = asyncio.create_task(call(breaker, asyncio.Event().wait))
    await asyncio.sleep(0)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert breaker.state is BreakerState.CLOSED


async def test_a_deadline_inside_the_guard_counts_as_a_failure() -> None:
    breaker = CircuitBreaker("qdrant", failures=1, clock=Clock())
    with pytest.raises(TimeoutError):
        async with breaker.guard(), asyncio.timeout(0):
            await asyncio.Event().wait()
    assert breaker.state is BreakerState.OPEN


@pytest.mark.parametrize("late", [answer, fail])
async def test_calls_from_before_the_circuit_opened_no_longer_move_it(late: object) -> None:
    clock = Clock()
    breaker = CircuitBreaker("qdrant", failures=1, reset_after=5.0, clock=clock)
    release = asyncio.Event()

    async def slow() -> str:
        await release.wait()
        return await late()  # type: ignore[operator]

    begun = asyncio.create_task(call(breaker, slow))
    await asyncio.sleep(0)
    with pytest.raises(ConnectionError):
        await call(breaker, fail)
    clock.now += 4
    release.set()
    await asyncio.wait([begun])
    assert breaker.state is BreakerState.OPEN
    clock.now += 1
    assert breaker.state is BreakerState.HALF_OPEN
    assert isinstance(begun.exception(), ConnectionError) is (late is fail)


async def test_errors_that_are_not_the_dependencys_count_as_an_answer() -> None:
    clock = Clock()
    breaker = CircuitBreaker("qdrant", failures=1, clock=clock, trips_on=ConnectionError)

    async def misuse() -> None:
        raise ValueError("bad argument")

    with pytest.raises(ValueError, match="bad argument"):
        await call(breaker, misuse)
    assert breaker.state is BreakerState.CLOSED


class Dependency:
    """Something that is away until it is not, and counts who asks."""

    def __init__(self) -> None:
        self.away = True
        self.asked = 0
        self.probed = 0

    async def ask(self) -> str:
        self.asked += 1
        if self.away:
            raise ConnectionError("down")
        return "ok"

    async def probe(self) -> None:
        self.probed += 1
        if self.away:
            raise ConnectionError("down")


def probing(dependency: Dependency, closed: asyncio.Event) -> CircuitBreaker:
    return CircuitBreaker(
        "qdrant",
        failures=2,
        reset_after=0.01,
        trips_on=ConnectionError,
        probe=dependency.probe,
        on_close=closed.set,
    )


async def test_with_a_probe_no_caller_ever_waits_for_what_is_away_and_recovery_needs_none() -> None:
    dependency, closed = Dependency(), asyncio.Event()
    breaker = probing(dependency, closed)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await call(breaker, dependency.ask)
    async with asyncio.timeout(15):
        while dependency.probed < 5:
            with pytest.raises(CircuitOpen):
                await call(breaker, dependency.ask)
            await asyncio.sleep(0.005)
    assert (dependency.asked, closed.is_set()) == (2, False)
    dependency.away = False
    async with asyncio.timeout(15):
        await closed.wait()
    assert breaker.state is BreakerState.CLOSED
    assert await call(breaker, dependency.ask) == "ok"
    await breaker.close()


async def test_a_probe_that_fails_otherwise_counts_as_an_answer() -> None:
    closed = asyncio.Event()
    dependency = Dependency()

    async def broken() -> None:
        raise ValueError("a mistake of ours")

    breaker = CircuitBreaker(
        "qdrant", failures=1, reset_after=0.01, trips_on=ConnectionError, probe=broken, on_close=closed.set
    )
    with pytest.raises(ConnectionError):
        await call(breaker, dependency.ask)
    async with asyncio.timeout(15):
        await closed.wait()
    assert breaker.state is BreakerState.CLOSED


async def test_a_closed_breaker_probes_no_more() -> None:
    dependency = Dependency()
    breaker = probing(dependency, asyncio.Event())
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await call(breaker, dependency.ask)
    await breaker.close()
    probed = dependency.probed
    await asyncio.sleep(0.05)
    assert dependency.probed == probed
