from __future__ import annotations

import mmap
import sys
from pathlib import Path

import pytest

from openmemory.index.engine.mapped_memory import release_mapped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is /proc on Linux only")

SIZE = 4 << 20


@pytest.fixture
def mapped(tmp_path: Path):
    """A file below a folder whose name needs care, all of it mapped and changed."""
    path = tmp_path / "a folder (1)" / "deep" / "vectors.mmap"
    path.parent.mkdir(parents=True)
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as pages:
        pages[:] = b"x" * SIZE
        yield tmp_path / "a folder (1)", path, pages


def test_resident_pages_are_given_back_and_nothing_in_them_is_lost(mapped, resident) -> None:
    folder, path, pages = mapped
    assert resident(path) == SIZE
    release_mapped(folder)
    assert resident(path) == 0
    assert pages[:] == b"x" * SIZE
    assert path.read_bytes() == b"x" * SIZE


def test_files_elsewhere_stay_resident(mapped, resident) -> None:
    folder, path, _ = mapped
    release_mapped(folder.with_name("a folder"))
    release_mapped(folder / "vectors.mmap")
    assert resident(path) == SIZE


def test_a_private_mapping_keeps_what_was_changed_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), SIZE, access=mmap.ACCESS_COPY) as pages:
        pages[:] = b"y" * SIZE
        release_mapped(tmp_path)
        assert pages[:] == b"y" * SIZE
