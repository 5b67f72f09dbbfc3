from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.service import Service, short_parent, starting


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder to be, for one test."""
    with short_parent() as parent:
        yield parent / "data"


@pytest.fixture(scope="module")
def served() -> Iterator[Service]:
    """A running service for the tests of one module."""
    with short_parent() as parent, starting(parent / "data") as start:
        service = start()
        service.ready()
        yield service


@pytest.fixture(scope="module")
def address(served: Service) -> str:
    """Where that service listens."""
    return served.ready()
