"""What `openmemory doctor` prints."""

from __future__ import annotations

import pytest

from openmemory.cli.doctor import _in_units


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (5_000_000_000, "5.0 GB"),
        (7_200_000_000_000_000, "7200.0 TB"),
    ],
)  # fmt: skip
def test_sizes_are_in_units_that_people_read(size: int, told: str) -> None:
    assert _in_units(size) == told
