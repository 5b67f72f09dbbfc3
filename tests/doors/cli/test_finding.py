from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest

from openmemory.config.settings import Settings
from openmemory.doors.cli import finding
from openmemory.doors.cli.finding import reachable_service, stop_service
from openmemory.embedded.folder import DataFolder, running_service
from openmemory.errors import NotFound, Unavailable

Run = Callable[..., subprocess.CompletedProcess[str]]

START = (
    "import sys; from openmemory.doors.cli.finding import find_or_start\n"
    "from openmemory.config.settings import Settings\n"
    "print(find_or_start(Settings(data_dir=sys.argv[1]), ['--data-dir', sys.argv[1], '--port', sys.argv[2]]))"
)


def start(folder: Path, port: int = 0) -> subprocess.Popen[str]:
    """A process that needs the service of the folder, as `openmemory mcp` does."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OPENMEMORY_")}
    command = [sys.executable, "-c", START, str(folder), str(port)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def stopped(folder: Path) -> Iterator[Path]:
    """A data folder whose service, if one was started, is stopped after the test."""
    yield folder
    if running_service(folder) is not None:
        stop_service(Settings(data_dir=str(folder)))


@pytest.mark.slow
def test_two_that_need_a_service_at_once_share_the_one_that_starts(stopped: Path) -> None:
    both = [start(stopped), start(stopped)]
    answers = [process.communicate(timeout=100) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    urls = {out.strip() for out, _ in answers}
    assert len(urls) == 1
    [url] = urls
    assert httpx.get(f"{url}/health/live").json()["service"] == "openmemory"
    assert reachable_service(Settings(data_dir=str(stopped))) == url
    assert (stopped / "serve.log").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_service_that_was_started_in_the_background_outlives_its_starter_and_can_be_stopped(stopped: Path) -> None:
    starter = start(stopped)
    out, err = starter.communicate(timeout=100)
    assert starter.returncode == 0, err
    info = stop_service(Settings(data_dir=str(stopped)))
    assert info.url == out.strip()
    assert not psutil.pid_exists(info.pid) or psutil.Process(info.pid).status() == psutil.STATUS_ZOMBIE
    assert running_service(stopped) is None


def test_why_the_service_did_not_start_is_told_from_its_log(stopped: Path) -> None:
    starter = start(stopped, port=70_000)
    _, err = starter.communicate(timeout=100)
    assert starter.returncode == 1
    assert "SetupError: the service did not start: --port: " in err
    assert str(stopped / "serve.log") in err


@pytest.mark.slow
def test_a_service_that_gives_up_after_it_took_the_folder_is_not_started_again_and_again(stopped: Path) -> None:
    stopped.mkdir()
    (stopped / "postgres").write_text("in the way")
    starter = start(stopped)
    _, err = starter.communicate(timeout=100)
    assert "SetupError: the service did not start: " in err
    assert len((stopped / "serve.log").read_text().splitlines()) == 1


CLOSED = """
import encodings.idna, os, sys  # the first, because what Python is installed in may be closed to others too
from pathlib import Path
from openmemory.doors.cli.finding import reachable_service
from openmemory.config.settings import Settings
from openmemory.errors import SetupError
folder, port = Path(sys.argv[1]), int(sys.argv[2])
os.setuid(65534) if os.geteuid() == 0 else (folder / "openmemory.lock").chmod(0)
try:
    reachable_service(Settings(data_dir=str(folder), port=port))
except SetupError as error:
    print(error)
"""


@pytest.mark.parametrize("noted", [True, False])
def test_a_folder_of_another_account_is_told_with_what_to_do(served: Path, noted: bool) -> None:
    """Where its service listens is told by its note, if that may be read, or by the port that is configured."""
    info = running_service(served)
    assert info is not None
    port = 1 if noted else urlsplit(info.url).port
    (served / "service.json").chmod(0o644 if noted else 0o600)
    try:
        told = subprocess.run(
            [sys.executable, "-c", CLOSED, str(served), str(port)], check=False, capture_output=True, text=True
        )
    finally:
        (served / "openmemory.lock").chmod(0o600)
    assert told.stdout == (
        f"{served}: cannot be used as the data folder: Permission denied; choose another with --data-dir, or use the "
        f"service of that account with --url {info.url}\n"
    ), told.stderr


def test_a_command_that_has_the_stores_open_is_waited_for_only_so_long(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_BUSY_PATIENCE", 0.1)
    held = DataFolder.claim(folder, listen="no port (a test)")
    try:
        with pytest.raises(Unavailable, match=f"in use by process {os.getpid()}, which listens on no port"):
            reachable_service(Settings(data_dir=str(folder)))
    finally:
        held.release()


def test_a_command_is_no_service_to_stop(folder: Path) -> None:
    held = DataFolder.claim(folder, listen="no port (a test)")
    try:
        with pytest.raises(NotFound, match="no service is running on this data folder"):
            stop_service(Settings(data_dir=str(folder)))
    finally:
        held.release()


def test_stopping_where_nothing_runs_makes_no_folder(run: Run, folder: Path) -> None:
    told = run("stop", "--data-dir", str(folder))
    assert (told.returncode, told.stderr) == (1, f"openmemory: {folder}: no service is running on this data folder\n")
    assert not folder.exists()
