from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.service import Service


@pytest.fixture(scope="module")
def served() -> Iterator[Service]:
    """A running service for the tests of one module."""
    parent = Path(tempfile.mkdtemp(prefix="om-"))
    parent.chmod(0o755)
    service = Service("--data-dir", str(parent / "data"), "--port", "0")
    try:
        service.ready()
        yield service
    finally:
        service.close()
        shutil.rmtree(parent)


@pytest.fixture(scope="module")
def address(served: Service) -> str:
    """Where that service listens."""
    return served.ready()
