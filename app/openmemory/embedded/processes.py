"""Starts, watches and ends server processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from openmemory.embedded.account import Account
from openmemory.errors import SetupError

_PR_SET_PDEATHSIG = 1
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR")


def environment() -> dict[str, str]:
    """Returns the environment of a server: without our secrets, and without PG* variables that change its settings."""
    return {name: os.environ[name] for name in _PASSED_ON if name in os.environ} | {"LC_ALL": "C"}


def launch(command: Sequence[str | Path], account: Account | None, log: int) -> subprocess.Popen[bytes]:
    """Start a server process in its own session, so that Ctrl-C in our terminal does not reach it.

    On Linux it receives SIGINT when the calling *thread* ends: call it from the thread that runs the event loop.
    """
    with warnings.catch_warnings():
        # Python 3.12 warns about forking with threads; the child makes only two system calls before it executes.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        return subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment(),
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            # Runs after the change of user, which would reset this setting.
            preexec_fn=_ending_with(os.getpid()) if sys.platform == "linux" else None,  # noqa: PLW1509
        )


def _ending_with(parent: int) -> Callable[[], None]:
    prctl = ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return ask


async def exited(process: subprocess.Popen[bytes], timeout: float) -> bool:  # noqa: ASYNC109
    """Wait until our child has ended, and reap it. Returns False if it has not ended within `timeout` seconds."""
    # Checked first, because a reaped child's pid may already belong to another process.
    if process.poll() is not None:
        return True
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        while process.poll() is None and loop.time() < deadline:  # noqa: ASYNC110 - this platform has no event for it
            await asyncio.sleep(0.05)
        return process.poll() is not None
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout_at(deadline):
            await ended.wait()
    except TimeoutError:
        return process.poll() is not None
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    process.wait()
    return True


def servers_of(data: Path) -> list[psutil.Process]:
    """Returns every running PostgreSQL process of one data folder, including `initdb`, whichever process started it."""
    return [process for process in psutil.process_iter() if _serves(process, data)]


def says_ready(data: Path, pid: int) -> bool:
    """Returns True if that postmaster's pid file says that it accepts connections."""
    lines = _pid_file_lines(data)
    return len(lines) > 7 and lines[0].strip() == str(pid) and lines[7].strip() == "ready"


def end_servers(data: Path) -> list[int]:
    """End the servers that a former owner left running on the data folder, and remove the pid file. Returns their pids.

    Only the owner of the data folder may call it. The pid file alone proves nothing, because pids are reused.

    Raises:
        SetupError: a process of that server does not end even when killed.
    """
    pid_file = data / "postmaster.pid"
    if not pid_file.exists():
        return []
    first = "".join(_pid_file_lines(data)[:1]).strip()
    servers = living = servers_of(data)
    # Without a postmaster, leftover processes need only a signal; with one, a fast shutdown saves a recovery.
    if any(str(process.pid) == first for process in living):
        living = _signal([process for process in living if str(process.pid) == first], living, signal.SIGINT, 2.5)
    for signal_, patience in ((signal.SIGQUIT, 0.5), (signal.SIGKILL, 0.5)):
        living = _signal(living, living, signal_, patience)
    if living:
        raise SetupError(f"{data}: process {living[0].pid} of an earlier server does not end")
    # PostgreSQL would mistake a foreign process of the same account with that pid for a running server.
    pid_file.unlink(missing_ok=True)
    return [process.pid for process in servers]


def kill_servers(data: Path) -> None:
    """Kill every server process on a folder that is to be deleted."""
    living = servers_of(data)
    _signal(living, living, signal.SIGKILL, 1.0)


def _pid_file_lines(data: Path) -> list[str]:
    try:
        return (data / "postmaster.pid").read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _serves(process: psutil.Process, data: Path) -> bool:
    """Returns True if it is a running PostgreSQL process of the data folder, and not a zombie."""
    try:
        if process.name() not in {"postgres", "initdb"} or process.status() == psutil.STATUS_ZOMBIE:
            return False
        command = process.cmdline()
        return process.cwd() == str(data) or ("-D" in command and str(data) in command)
    except psutil.Error:
        return False


def _signal(
    targets: list[psutil.Process], living: list[psutil.Process], number: signal.Signals, patience: float
) -> list[psutil.Process]:
    """Signal the targets. Returns those of `living` that still run after at most `patience` seconds."""
    for process in targets:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + patience
    while (living := [process for process in living if _lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return living


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
