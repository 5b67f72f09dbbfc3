"""The model itself is tested here, so it reads a text as often as it is asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.one_reading import each_time


@pytest.fixture(autouse=True)
def reads_each_time() -> Iterator[None]:
    with each_time():
        yield
