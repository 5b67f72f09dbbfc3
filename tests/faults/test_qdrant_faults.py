"""The service while Qdrant refuses, hangs, lies, fills up or dies: searches answer, nothing is lost, all heals itself.

Everything runs as processes of its own: the service, its PostgreSQL, and Qdrant behind a proxy of ours.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from openmemory.index.ownership import BEAT_EVERY
from tests.clusters import furnish
from tests.faults.disks import disk
from tests.faults.outage import NO_INDEX, Outage
from tests.faults.proxy import Mode, Proxy
from tests.faults.qdrant import Qdrant
from tests.journeys.service import Service, short_parent, until

pytestmark = [pytest.mark.journey, pytest.mark.timeout(240)]

TIMEOUT = 1.0
"""Seconds that a search may wait for Qdrant: `qdrant.timeout`."""

COLLECTION = "openmemory__all-minilm-l6-v2-int8__384__words-scope"


class Stack:
    """A service on a Qdrant that it can only reach through a proxy."""

    def __init__(self, folder: Path) -> None:
        self.qdrant = Qdrant(folder / "disk" / "qdrant")
        self.qdrant.start()
        self.proxy = Proxy(self.qdrant.port)
        self.service = Service(
            "--data-dir", str(furnish(folder / "data")), "--port", "0",
            OPENMEMORY_QDRANT_URL=self.proxy.url,OPENMEMORY_QDRANT_TIMEOUT=str(TIMEOUT),
        )  # fmt: skip
        self.url = self.service.ready()

    def close(self) -> None:
        self.service.close()
        self.proxy.close()
        self.qdrant.stop()


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with short_parent() as parent:
        yield parent


@pytest.fixture(scope="module")
def started(folder: Path) -> Iterator[Stack]:
    with closing(Stack(folder)) as stack:
        yield stack


@pytest.fixture
def stack(started: Stack) -> Iterator[Stack]:
    """The running stack, with whatever a test did to its Qdrant undone."""
    yield started
    started.proxy.set(Mode.PASS)
    assert started.qdrant.process is not None
    if started.qdrant.process.poll() is not None:
        started.qdrant.start()
    httpx.post(f"{started.url}/api/v1/sync", timeout=60)  # a failed test must not fail the next one


def slow(*values: object) -> object:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("mode", "seconds"),
    [
        (Mode.REFUSE, 0.0),
        slow(Mode.HANG, 0.0),
        slow(Mode.SLOW, 3 * TIMEOUT),
        slow(Mode.ERROR_500, 0.0),
        slow(Mode.GARBAGE, 0.0),
        slow(Mode.CUT, 0.0),
        slow(Mode.WRONG_DIMENSION, 0.0),
    ],
)
def test_without_qdrant_the_words_answer_and_nothing_is_lost(
    stack: Stack, outage: Outage, mode: Mode, seconds: float
) -> None:
    before = stack.proxy.faulted
    stack.proxy.set(mode, seconds)
    # Quickly means that nobody waits for Qdrant any more.
    outage.degraded(NO_INDEX, times=8, each=4 * TIMEOUT, quickly=TIMEOUT)
    outage.change()
    outage.degraded(NO_INDEX, times=4, each=4 * TIMEOUT, quickly=TIMEOUT)
    assert mode is Mode.REFUSE or stack.proxy.faulted > before

    stack.proxy.set(Mode.PASS)
    outage.report(mode, stack.proxy.faulted - before, outage.whole())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "seconds"),
    [(Mode.OUT_OF_DISK, 0.0), slow(Mode.READ_ONLY, 0.0), slow(Mode.SLOW, TIMEOUT / 5)],
)
def test_a_qdrant_that_still_reads_still_answers(stack: Stack, outage: Outage, mode: Mode, seconds: float) -> None:
    before = stack.proxy.faulted
    stack.proxy.set(mode, seconds)
    outage.hybrid(times=3)
    outage.change()
    outage.hybrid(times=5)
    if mode is Mode.READ_ONLY:
        # In this time, the service tries to write its mark on the collection again, and cannot.
        ends = time.monotonic() + BEAT_EVERY + 2
        while time.monotonic() < ends:
            outage.hybrid(times=1)
    until(lambda: stack.proxy.faulted > before, 20)

    stack.proxy.set(Mode.PASS)
    outage.report(mode, stack.proxy.faulted - before, outage.whole())


GONE = "index does not answer; it is asked again every 5 s"
BEHIND = "the vector index is behind: "
BACK = "index answers again"


@pytest.mark.slow
def test_that_qdrant_is_gone_is_told_once_in_the_log_and_by_the_health_until_it_is_back(
    stack: Stack, outage: Outage
) -> None:
    def said(words: str) -> int:
        return stack.service.err.count(words)

    def ready() -> dict[str, Any]:
        answer = httpx.get(f"{stack.url}/health/ready", timeout=20)
        assert answer.status_code == 200, "requests can be answered all the same"
        return dict(answer.json())

    assert (ready()["status"], outage.doctor()["problems"]) == ("ok", [])
    gone, behind, back = said(GONE), said(BEHIND), said(BACK)
    stack.qdrant.kill()
    outage.degraded(NO_INDEX, times=8, each=4 * TIMEOUT, quickly=TIMEOUT)
    outage.change()
    until(lambda: said(GONE) > gone and said(BEHIND) > 0, 20)
    outage.degraded(NO_INDEX, times=8, each=4 * TIMEOUT, quickly=TIMEOUT)
    assert said(GONE) == gone + 1, "an outage is one event, however often it is met"
    assert said(BEHIND) <= behind + 1, "at most once a minute"
    degraded = ready()
    assert (degraded["status"], degraded["checks"]["index"]["ok"]) == ("degraded", False)
    assert degraded["checks"]["postgres"]["ok"]
    assert [problem for problem in outage.doctor()["problems"] if problem.startswith("index: ")]
    assert said(BACK) == back

    stack.qdrant.start()
    outage.whole()
    assert (said(GONE), said(BACK)) == (gone + 1, back + 1)
    assert (ready()["status"], outage.doctor()["problems"]) == ("ok", [])


@pytest.mark.slow
def test_faults_that_follow_each_other_add_up_to_nothing(stack: Stack, outage: Outage) -> None:
    before = stack.proxy.faulted
    for mode in (Mode.OUT_OF_DISK, Mode.HANG, Mode.GARBAGE, Mode.REFUSE, Mode.CUT, Mode.ERROR_500):
        stack.proxy.set(mode)
        for _ in range(3):
            outage.search()
    outage.change()
    stack.proxy.set(Mode.PASS)
    outage.report("one after the other", stack.proxy.faulted - before, outage.whole())


@pytest.mark.slow
def test_a_collection_that_is_deleted_behind_our_back_is_filled_again(stack: Stack, outage: Outage) -> None:
    assert httpx.delete(f"{stack.qdrant.url}/collections/{COLLECTION}").json()["result"] is True
    for _ in range(3):
        outage.search()
    outage.change()
    outage.report("collection deleted", 1, outage.whole())


@pytest.mark.slow
def test_a_qdrant_that_was_killed_and_lost_everything_is_filled_again(stack: Stack, outage: Outage) -> None:
    stack.qdrant.kill()
    outage.degraded(NO_INDEX, times=8, each=4 * TIMEOUT, quickly=TIMEOUT)
    outage.change()
    shutil.rmtree(stack.qdrant.folder)
    stack.qdrant.start()
    outage.report("killed, folder lost", 1, outage.whole())


@pytest.mark.slow
def test_a_qdrant_that_is_killed_while_it_is_written_to_is_in_step_again(stack: Stack, outage: Outage) -> None:
    done = threading.Event()
    written: list[int] = []

    def write() -> None:
        with httpx.Client(base_url=stack.url, timeout=40) as client:
            while not done.is_set():
                body = {"user_id": "writer", "text": f"Note number {len(written)}.", "infer": False}
                written.append(client.post("/api/v1/memories", json=body).status_code)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for kills in range(1, 4):
            until(lambda kills=kills: len(written) > 60 * kills, 60)
            stack.qdrant.kill()
            outage.search()
            stack.qdrant.start()
    finally:
        done.set()
        thread.join()
    assert set(written) <= {200, 201}
    outage.change()
    outage.report("killed thrice while writing", 3, outage.whole())


@pytest.mark.slow
def test_a_qdrant_whose_disk_fills_up_still_answers_and_catches_up_when_there_is_room(folder: Path) -> None:
    with disk(folder / "small" / "disk", megabytes=140) as small:
        stack = Stack(folder / "small")
        outage = Outage(stack.url)
        try:
            outage.begin()
            small.fill(leave=2_000_000)
            outage.hybrid(times=3)
            outage.change()
            outage.hybrid(times=5)
            until(lambda: outage.doctor()["vectors_waiting"] > 0, 20)
            assert stack.qdrant.process is not None
            assert stack.qdrant.process.poll() is None
            small.empty()
            outage.report("disk full", 1, outage.whole())
        finally:
            outage.close()
            stack.close()
