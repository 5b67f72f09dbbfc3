from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from app.cli import finding
from app.cli.finding import reachable_service, stop_service
from app.config import Settings
from app.embedded.folder import DataFolder, running_service
from app.errors import NotFound, Unavailable

Run = Callable[..., subprocess.CompletedProcess[str]]

START = (
    "import sys; from app.cli.finding import find_or_start; from app.config import Settings\n"
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
        with pytest.raises(NotFound, match="no service runs there"):
            stop_service(Settings(data_dir=str(folder)))
    finally:
        held.release()


def test_stopping_where_nothing_runs_makes_no_folder(run: Run, folder: Path) -> None:
    told = run("stop", "--data-dir", str(folder))
    assert (told.returncode, told.stderr) == (1, f"openmemory: {folder}: no service runs there\n")
    assert not folder.exists()
