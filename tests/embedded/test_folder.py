from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import platformdirs
import psutil
import pytest

from openmemory.embedded import folder as folder_module
from openmemory.embedded.folder import DataFolder, default_data_dir, running_service, temporary
from openmemory.errors import SetupError, Unavailable

Run = Callable[..., "subprocess.Popen[str]"]

OWNER = """
import sys, time
from pathlib import Path
from openmemory.embedded.folder import DataFolder
folder = DataFolder.claim(Path(sys.argv[1]), listen="http://127.0.0.1:1234")
print("owned", flush=True)
time.sleep(60)
"""

CLAIM = """
import sys
from pathlib import Path
from openmemory.embedded.folder import DataFolder
from openmemory.errors import SetupError
{before}
try:
    DataFolder.claim(Path(sys.argv[1]), listen="http://127.0.0.1:1234")
except SetupError as error:
    print(error)
"""


def test_the_owner_tells_who_it_is_and_where_it_listens(folder: DataFolder) -> None:
    service = running_service(folder.path)
    assert service is not None
    assert service.pid == os.getpid()
    assert service.is_alive()
    assert service.url == "http://127.0.0.1:8765"
    assert datetime.now(UTC) - service.started_at < timedelta(minutes=1)
    assert set(json.loads((folder.path / "service.json").read_text())) == {
        "pid",
        "process_started",
        "url",
        "started_at",
        "version",
    }


def test_temporary_files_of_a_killed_owner_are_gone_at_the_next_start(place: Path) -> None:
    former = DataFolder.claim(place / "data", listen="")
    (temporary(former.path) / "half-written").write_text("x")
    former.release()
    DataFolder.claim(place / "data", listen="").release()
    assert list(temporary(former.path).iterdir()) == []


def test_the_url_can_be_published_once_the_port_is_known(folder: DataFolder) -> None:
    before = running_service(folder.path)
    folder.publish("http://127.0.0.1:54321")
    after = running_service(folder.path)
    assert before is not None
    assert after is not None
    assert after.url == "http://127.0.0.1:54321"
    assert after.started_at == before.started_at


def test_a_second_owner_is_told_who_holds_the_folder(place: Path, run_python: Run) -> None:
    owner = run_python(OWNER, place)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "owned\n"
    with pytest.raises(SetupError) as refused:
        DataFolder.claim(place, listen="http://127.0.0.1:1")
    assert str(refused.value) == (
        f"{place}: data folder in use by process {owner.pid}, which listens on http://127.0.0.1:1234"
    )
    service = running_service(place)
    assert service is not None
    assert service.pid == owner.pid


def test_a_killed_owner_leaves_the_folder_free_at_once(place: Path, run_python: Run) -> None:
    owner = run_python(OWNER, place)
    assert owner.stdout is not None
    owner.stdout.readline()
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert (place / "service.json").exists()
    assert running_service(place) is None
    DataFolder.claim(place, listen="http://127.0.0.1:1").release()


def test_release_frees_the_folder_and_may_be_repeated(folder: DataFolder) -> None:
    folder.release()
    folder.release()
    assert running_service(folder.path) is None
    assert not (folder.path / "service.json").exists()
    DataFolder.claim(folder.path, listen="http://127.0.0.1:1").release()


def test_a_released_folder_publishes_nothing(folder: DataFolder) -> None:
    folder.release()
    with pytest.raises(RuntimeError, match="released"):
        folder.publish("http://127.0.0.1:1")


def test_programs_we_start_do_not_inherit_the_ownership(folder: DataFolder) -> None:
    child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        folder.release()
        assert running_service(folder.path) is None
    finally:
        child.kill()
        child.wait()


def test_forked_processes_do_not_inherit_the_ownership(place: Path, run_python: Run) -> None:
    fork = "import os\nif not os.fork(): print(os.getpid(), flush=True)\ntime.sleep(60)"
    forking = run_python(OWNER.replace("time.sleep(60)", fork), place)
    assert forking.stdout is not None
    assert forking.stdout.readline() == "owned\n"
    child = int(forking.stdout.readline())
    try:
        forking.send_signal(signal.SIGKILL)
        forking.wait()
        assert psutil.pid_exists(child)
        assert running_service(place) is None
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_folder_that_nobody_ever_owned_has_no_service(place: Path) -> None:
    assert running_service(place) is None
    assert running_service(place / "missing") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"pid": "x"}', '{"pid": 1}', "\x00\xff"])
def test_a_garbled_note_of_a_dead_owner_disturbs_nobody(place: Path, text: str) -> None:
    DataFolder.claim(place, listen="http://127.0.0.1:1").release()
    (place / "service.json").write_text(text)
    assert running_service(place) is None
    DataFolder.claim(place, listen="http://127.0.0.1:1").release()


def test_an_owner_without_a_note_is_still_an_owner(folder: DataFolder) -> None:
    (folder.path / "service.json").unlink()
    with pytest.raises(Unavailable, match="does not say where it listens"):
        running_service(folder.path)
    with pytest.raises(SetupError, match="data folder in use by another process"):
        DataFolder.claim(folder.path, listen="http://127.0.0.1:1")


def test_a_file_in_the_way_is_named(place: Path) -> None:
    (place / "file").write_text("")
    with pytest.raises(SetupError, match="file: is not a folder; choose another with --data-dir"):
        DataFolder.claim(place / "file", listen="http://127.0.0.1:1")
    with pytest.raises(SetupError, match="inner: cannot be used as the data folder: Not a directory"):
        DataFolder.claim(place / "file" / "inner", listen="http://127.0.0.1:1")


def test_a_folder_without_permission_is_refused_in_one_line(place: Path, run_python: Run) -> None:
    before = "import os\nif os.geteuid() == 0: os.setgid(65534); os.setuid(65534)"
    place.chmod(0o555)
    told, _ = run_python(CLAIM.format(before=before), place).communicate(timeout=20)
    place.chmod(0o711)
    assert told == f"{place}: cannot be used as the data folder: Permission denied; choose another with --data-dir\n"


def test_a_folder_that_takes_no_more_bytes_is_refused_and_stays_free(place: Path, run_python: Run) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"
    told, _ = run_python(CLAIM.format(before=before), place).communicate(timeout=20)
    assert told == f"{place}: cannot be used as the data folder: File too large; choose another with --data-dir\n"
    DataFolder.claim(place, listen="http://127.0.0.1:1").release()


def test_a_new_data_folder_is_closed_to_others(place: Path) -> None:
    owned = DataFolder.claim(place / "a" / "b", listen="http://127.0.0.1:1")
    try:
        mode = stat.S_IMODE(owned.path.stat().st_mode)
        assert mode == (0o711 if os.geteuid() == 0 else 0o700)
        assert stat.S_IMODE((owned.path / "openmemory.lock").stat().st_mode) == 0o600
    finally:
        owned.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another folder than its own")
class TestDefaultOfRoot:
    @pytest.fixture
    def homes(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
        """Root's data folder behind a closed home, and the system's."""
        system = place / "system"
        monkeypatch.setattr(folder_module, "_SYSTEM_FOLDER", system)
        monkeypatch.setenv("XDG_DATA_HOME", str(place / "home" / "share"))
        (place / "home").mkdir(mode=0o700)
        return platformdirs.user_data_path("openmemory", appauthor=False), system

    def test_a_closed_home_sends_root_to_the_system_folder(self, homes: tuple[Path, Path]) -> None:
        assert default_data_dir() == homes[1]

    def test_an_open_home_is_used(self, homes: tuple[Path, Path], place: Path) -> None:
        (place / "home").chmod(0o711)
        assert default_data_dir() == homes[0]

    def test_data_behind_a_closed_home_is_not_abandoned(self, homes: tuple[Path, Path]) -> None:
        homes[0].mkdir(parents=True)
        assert default_data_dir() == homes[1]
        (homes[0] / "postgres").mkdir()
        assert default_data_dir() == homes[0]

    def test_data_in_the_system_folder_is_not_abandoned(self, homes: tuple[Path, Path], place: Path) -> None:
        (homes[1] / "postgres").mkdir(parents=True)
        (place / "home").chmod(0o711)
        assert default_data_dir() == homes[1]


def test_an_ordinary_user_gets_the_platforms_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == platformdirs.user_data_path("openmemory", appauthor=False)
