"""`openmemory installation`: whose the collection is, and what to say after a copy."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from uuid import UUID

import pytest

from openmemory.index.engine.rest_api import QdrantRestApi
from tests.clusters import furnish
from tests.doors.cli.conftest import Run
from tests.index.serving import served as served_app
from tests.journeys.service import starting, until


def test_an_installation_shows_its_id_and_has_nothing_to_decide(om: Run) -> None:
    shown = om("installation", "--json")
    answer = json.loads(shown.stdout)
    assert (shown.returncode, answer["refusal"], answer["asked"]) == (0, None, False)
    said = om("installation").stdout
    assert said.startswith(f"Installation {UUID(answer['id'])}\n")
    assert "is this installation's" in said
    for option in ("--copied", "--moved"):
        refused = om("installation", option)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "The index is not in doubt" in refused.stderr
    both = om("installation", "--copied", "--moved")
    assert both.returncode == 2
    assert "--copied" in both.stderr
    assert json.loads(om("installation", "--json").stdout)["id"] == answer["id"]


def test_a_key_that_is_bound_to_a_user_decides_nothing(om: Run, user: str) -> None:
    key = om("keys", "create", "bound", "--user", user, "--scope", "admin").stdout.strip()
    refused = om("installation", "--copied", OPENMEMORY_API_KEY=key)
    assert refused.returncode == 1
    assert "bound to no user, app or namespace" in refused.stderr


@pytest.mark.slow
async def test_a_copy_of_a_database_is_told_to_be_one(run: Run, folder: Path, tmp_path: Path) -> None:
    """Both data folders come from one template, so that their databases are copies of each other."""
    folders = furnish(folder.parent / "first"), furnish(folder.parent / "copy")
    async with served_app(QdrantRestApi(tmp_path / "qdrant")) as qdrant:
        await asyncio.to_thread(_decided, run, folders, qdrant)


def _decided(run: Run, folders: tuple[Path, Path], qdrant: str) -> None:
    first, copy = folders

    def shown(folder: Path) -> tuple[int, dict[str, object]]:
        done = run("installation", "--json", OPENMEMORY_DATA_DIR=str(folder))
        return done.returncode, json.loads(done.stdout)

    with starting(first) as start_first, starting(copy) as start_copy:
        start_first(OPENMEMORY_QDRANT_URL=qdrant).ready()
        assert run("add", "tea is made at four", OPENMEMORY_DATA_DIR=str(first)).returncode == 0
        until(lambda: shown(first)[1]["collection"] != "", 30)
        _, before = shown(first)
        start_copy(OPENMEMORY_QDRANT_URL=qdrant).ready()
        until(lambda: shown(copy)[1]["asked"] is True, 30)
        code, asked = shown(copy)
        assert (code, asked["id"]) == (1, before["id"])
        told = run("installation", OPENMEMORY_DATA_DIR=str(copy))
        assert "is left alone: " in told.stdout
        assert "--copied" in told.stdout
        run("installation", "--copied", OPENMEMORY_DATA_DIR=str(copy))
        until(lambda: shown(copy)[0] == 0, 30)
        _, after = shown(copy)
        assert after["id"] != before["id"]
        assert after["collection"] != before["collection"]
        assert shown(first) == (0, before)
