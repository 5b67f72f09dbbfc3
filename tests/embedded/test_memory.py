"""What the built-in database may keep in memory follows the machine and the container."""

from __future__ import annotations

from pathlib import Path

import pytest

from openmemory.embedded.memory import machine, shared_buffers

GB = 1024**3


@pytest.mark.parametrize(
    ("memory", "setting"),
    [(GB // 2, "128MB"), (2 * GB, "128MB"), (8 * GB, "512MB"), (16 * GB, "1024MB"), (256 * GB, "1024MB")],
)
def test_a_sixteenth_is_for_pages_within_bounds(memory: int, setting: str) -> None:
    assert shared_buffers(memory) == setting


def test_the_smaller_of_machine_and_container_counts(tmp_path: Path) -> None:
    whole = machine([tmp_path / "missing"])
    assert whole > 64 * 1024**2
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert machine([limit]) == whole
    limit.write_text(f"{whole // 2}\n")
    assert machine([tmp_path / "missing", limit]) == whole // 2
    limit.write_text(f"{1 << 62}\n")  # what the first version says where there is none
    assert machine([limit]) == whole
