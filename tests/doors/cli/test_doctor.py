"""What `openmemory doctor` prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmemory.doors.cli.doctor import _in_units
from tests.doors.cli.conftest import Run


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (12_345_678, "12.3 MB"), (5_000_000_000, "5.0 GB"),
        (7_200_000_000_000_000, "7200.0 TB"),
    ],
)  # fmt: skip
def test_sizes_are_in_units_that_people_read(size: int, told: str) -> None:
    assert _in_units(size) == told


@pytest.mark.parametrize("made", [False, True])
def test_the_doctor_of_a_data_folder_that_is_not_there_makes_none(run: Run, folder: Path, made: bool) -> None:
    if made:
        folder.mkdir()
    done = run("doctor", "--data-dir", str(folder))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == (
        f"openmemory: {folder}: there is no data folder; `openmemory serve` makes one"
    )
    assert folder.exists() == made
    assert not made or not any(folder.iterdir())
