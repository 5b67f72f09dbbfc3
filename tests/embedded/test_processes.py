from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from openmemory.embedded.postgres import EmbeddedPostgres
from openmemory.embedded.processes import end_servers, environment, exited, launch, servers_of


def test_the_server_gets_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMEMORY_ACCESS_API_KEY", "secret")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    assert set(environment()) <= {"PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "LC_ALL"}
    assert environment()["LC_ALL"] == "C"


def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


async def test_the_end_of_a_process_is_noticed_and_reaped() -> None:
    process = sleeper()
    try:
        assert not await exited(process, 0.05)
        asyncio.get_running_loop().call_later(0.05, os.kill, process.pid, signal.SIGKILL)
        assert await exited(process, 20)
        assert process.returncode == -signal.SIGKILL
        assert await exited(process, 0)
    finally:
        process.kill()
        process.wait()


async def test_the_end_of_a_process_is_noticed_without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    process = sleeper()
    try:
        assert not await exited(process, 0.05)
        process.send_signal(signal.SIGKILL)
        assert await exited(process, 20)
    finally:
        process.kill()
        process.wait()


def test_a_launched_process_is_in_a_session_of_its_own(tmp_path: Path) -> None:
    log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
    process = launch(["sleep", "60"], None, log)
    try:
        assert os.getsid(process.pid) == process.pid
        assert os.getpgid(process.pid) == process.pid
    finally:
        os.close(log)
        process.kill()
        process.wait()


def test_without_a_pid_file_there_is_nothing_to_end(tmp_path: Path) -> None:
    assert end_servers(tmp_path) == []


@pytest.mark.parametrize("text", ["", "nonsense", "-1", "99999999\n/data\n", "\x00"])
def test_a_pid_file_of_nobody_is_removed(tmp_path: Path, text: str) -> None:
    (tmp_path / "postmaster.pid").write_text(text)
    assert end_servers(tmp_path) == []
    assert not (tmp_path / "postmaster.pid").exists()


def test_a_stranger_under_the_noted_pid_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    try:
        (tmp_path / "postmaster.pid").write_text(f"{stranger.pid}\n{tmp_path}\n")
        assert end_servers(tmp_path) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


async def test_a_server_of_another_data_folder_is_left_alone(postgres: EmbeddedPostgres, tmp_path: Path) -> None:
    (tmp_path / "postmaster.pid").write_text(f"{postgres.pid}\n{tmp_path}\n")
    assert end_servers(tmp_path) == []
    assert postgres.pid is not None
    assert postgres.restarts == 0


async def test_all_processes_of_a_server_are_found_by_its_folder(postgres: EmbeddedPostgres) -> None:
    assert postgres.pid is not None
    # Workers of its own come and go.
    before = {process.pid for process in psutil.Process(postgres.pid).children()}
    found = {process.pid for process in servers_of(postgres.data)}
    after = {process.pid for process in psutil.Process(postgres.pid).children()}
    assert len(before & after) >= 4
    assert before & after <= found - {postgres.pid} <= before | after
    assert postgres.pid in found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="zombies are made by Linux rules here")
def test_a_zombie_counts_as_dead(place: Path) -> None:
    # A copy under this name is what a server looks like from outside.
    program = place / "postgres"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    process = subprocess.Popen([program, "60"], cwd=place)
    try:
        (place / "postmaster.pid").write_text(f"{process.pid}\n")
        assert [found.pid for found in servers_of(place)] == [process.pid]
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert psutil.pid_exists(process.pid)
        assert end_servers(place) == []
        assert not (place / "postmaster.pid").exists()
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the data folder of a process is read from /proc")
def test_a_server_that_ignores_polite_signals_is_killed(place: Path) -> None:
    script = "trap '' INT QUIT; echo ready; while :; do read -t 60 -u 1; done"
    program = place / "postgres"
    program.write_bytes(Path("/bin/bash").read_bytes())
    program.chmod(0o755)
    process = subprocess.Popen([program, "-c", script], cwd=place, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (place / "postmaster.pid").write_text(f"{process.pid}\n")
        assert end_servers(place) == [process.pid]
        assert process.wait(5) == -signal.SIGKILL
    finally:
        process.kill()
        process.communicate()
