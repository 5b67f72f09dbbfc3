"""The service with the built-in engine on a disk that fills up: it goes on, and catches up when there is room."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.clusters import furnish
from tests.faults.disks import disk
from tests.faults.outage import NO_INDEX, Outage
from tests.journeys.service import Service, short_parent, until

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_parent() as parent:
        furnish(parent / "data")
        yield parent


def test_a_full_disk_stops_the_index_from_learning_and_nothing_else(folder: Path) -> None:
    with disk(folder / "data" / "qdrant", megabytes=140) as small:
        service = Service("--data-dir", str(folder / "data"), "--port", "0")
        try:
            with closing(Outage(service.ready())) as outage:
                outage.begin()
                small.fill()
                outage.hybrid(times=3)
                outage.change()
                outage.hybrid(times=5)
                until(lambda: outage.doctor()["vectors_waiting"] > 0, 20)
                small.empty()
                outage.report("built-in engine, disk full", 1, outage.whole())
        finally:
            service.close()


def test_a_service_that_starts_on_a_full_disk_answers_by_text_and_heals_when_there_is_room(folder: Path) -> None:
    with disk(folder / "data" / "qdrant", megabytes=240) as small:
        first = Service("--data-dir", str(folder / "data"), "--port", "0")
        try:
            with closing(Outage(first.ready())) as outage:
                outage.begin()
                small.fill()
                outage.change()
                known, user = outage.ids, outage.user
            first.process.send_signal(signal.SIGTERM)
            assert first.ended(20) == 0, first.err
            assert "Traceback" not in first.err
        finally:
            first.close()
        second = Service("--data-dir", str(folder / "data"), "--port", "0")
        try:
            with closing(Outage(second.ready())) as outage:
                outage.ids, outage.user = known, user
                outage.degraded(NO_INDEX, times=6, each=5, quickly=1)
                small.empty()
                outage.report("started on a full disk", 1, outage.whole())
        finally:
            second.close()
