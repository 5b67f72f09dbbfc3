"""What an old server sends is unpacked within bounds, like what anybody sends."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from openmemory.backup.format import BadArchive
from openmemory.importers import old_server
from openmemory.importers.left_out import SkippedRows

TABLES = json.dumps({"user": {"user_id": "a"}, "memories": [], "export_meta": {"version": "1"}}).encode()


def exported(folder: Path, bomb: str) -> Path:
    """An export in which 128 MiB stand where a few bytes are."""
    path = folder / "exported.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name in ("memories.json", "memories.jsonl.gz"):
            with file.open(name, "w", force_zip64=True) as member:
                if name == bomb:
                    for _ in range(128):
                        member.write((b" " if name == "memories.json" else b"\0") * 2**20)
                if name == "memories.json":
                    member.write(TABLES)
    assert path.stat().st_size < 256 * 1024
    return path


async def test_an_old_servers_tables_are_unpacked_within_bounds(tmp_path: Path) -> None:
    path = exported(tmp_path, "memories.json")
    with pytest.raises(BadArchive, match=r"memories\.json unpacks to more than 200 times its size"):
        await old_server.with_accesses("http://localhost:1", path, tmp_path, SkippedRows(), lambda _done, _total: None)


async def test_what_is_not_used_of_an_old_servers_export_is_not_unpacked(tmp_path: Path) -> None:
    path = exported(tmp_path, "memories.jsonl.gz")
    whole = await old_server.with_accesses(
        "http://localhost:1", path, tmp_path, SkippedRows(), lambda _done, _total: None
    )
    with zipfile.ZipFile(whole) as archive:
        assert archive.namelist() == ["memories.json", "access_logs.jsonl.gz"]
        assert archive.read("memories.json") == TABLES
    assert whole.stat().st_size < 1024
