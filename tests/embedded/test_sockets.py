from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from openmemory.embedded import sockets
from openmemory.embedded.account import Account, server_account
from openmemory.errors import SetupError

DEEP = "d" * 120


def test_the_socket_is_in_the_data_folder_where_its_path_fits() -> None:
    assert sockets.socket_folder(Path("/srv/memory"), None) == Path("/srv/memory/run")


def test_a_deep_data_folder_has_one_short_socket_folder_of_its_own() -> None:
    deep = Path("/srv") / DEEP
    found = sockets.socket_folder(deep, None)
    assert found.parent == Path(tempfile.gettempdir())
    assert len(os.fsencode(found / ".s.PGSQL.5432")) < 100
    assert found == sockets.socket_folder(deep, None)
    assert found != sockets.socket_folder(deep / "other", None)


@pytest.mark.parametrize("length", range(70, 110))
def test_no_length_of_a_path_passes_the_limit(length: int) -> None:
    found = sockets.socket_folder(Path("/" + "é" * (length // 2)), None)
    assert len(os.fsencode(found / ".s.PGSQL.5432")) < 100


def test_a_temporary_folder_that_the_server_cannot_enter_is_passed_over(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(closed))
    stranger = Account(uid=os.geteuid() + 12345, gid=os.getegid() + 12345, name="stranger")
    assert sockets.socket_folder(Path("/srv") / DEEP, stranger).parent == Path("/tmp")


def test_a_machine_without_a_temporary_folder_is_told_to_shorten_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(SetupError, match="path too long for a unix socket"):
        sockets.socket_folder(Path("/srv") / DEEP, None)


def test_the_folder_is_private_and_can_be_made_again(place: Path) -> None:
    folder, account = place / "run", server_account()
    sockets.create(folder, account)
    sockets.create(folder, account)
    found = folder.stat()
    assert stat.S_IMODE(found.st_mode) == 0o700
    assert found.st_uid == (account.uid if account else os.geteuid())
    (folder / ".s.PGSQL.5432.lock").write_text("")
    sockets.remove(folder)
    sockets.remove(folder)
    assert not folder.exists()


def test_a_folder_that_others_may_enter_is_refused(place: Path) -> None:
    (place / "run").mkdir()
    (place / "run").chmod(0o777)
    with pytest.raises(SetupError, match="must be a private folder of this account"):
        sockets.create(place / "run", None)


def test_a_link_in_its_place_is_refused_and_its_target_keeps_its_owner(place: Path) -> None:
    target = place / "target"
    target.mkdir(mode=0o700)
    (place / "run").symlink_to(target)
    with pytest.raises(SetupError, match="must be a private folder of this account"):
        sockets.create(place / "run", server_account())
    assert target.stat().st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder of another user")
def test_a_folder_of_another_user_is_refused(place: Path) -> None:
    (place / "run").mkdir(mode=0o700)
    os.chown(place / "run", 12345, 12345)
    with pytest.raises(SetupError, match="must be a private folder of this account"):
        sockets.create(place / "run", server_account())
