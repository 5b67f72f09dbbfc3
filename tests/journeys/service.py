"""`openmemory serve` as a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests import warm
from tests.folders import new_folder

START = 60.0
"""Seconds that a start may take on a busy machine."""


_FEWER = {"OPENMEMORY_CATEGORIES_ASSIGN": "off"}
"""Each process would have the model read two hundred phrases as soon as there is a memory."""


class Service:
    """`openmemory serve` in a process group of its own, as a terminal would start it."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.folder = arguments[arguments.index("--data-dir") + 1] if "--data-dir" in arguments else ""
        self._out = tempfile.TemporaryFile()  # noqa: SIM115
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = self._start(["serve", *arguments], _FEWER | environment)

    def _start(self, arguments: list[str], environment: dict[str, str]) -> warm.Command | subprocess.Popen[bytes]:
        return warm.start(
            arguments, stdout=self._out, stderr=self._err, environment=warm.clean_environment() | environment
        )

    @property
    def out(self) -> str:
        """What it printed so far."""
        return os.pread(self._out.fileno(), 100_000, 0).decode()

    @property
    def err(self) -> str:
        """What it logged so far."""
        return os.pread(self._err.fileno(), 1_000_000, 0).decode()

    def ready(self) -> str:
        """Wait until it says where it listens; returns the URL."""
        until(lambda: "Data folder" in self.out or self.process.poll() is not None, START)
        found = re.search(r"REST +(http://\S+)/api/v1", self.out)
        assert found, self.err
        return found[1]

    def ended(self, within: float) -> int:
        """Its exit code, once it has ended."""
        return self.process.wait(within)

    def family(self) -> list[psutil.Process]:
        """The process and all that it started."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]

    def close(self) -> None:
        """End it whatever happened, with all that it started."""
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            self.process.wait(10)
            _, alive = psutil.wait_procs(family, 10)
            for process in alive:
                process.kill()
        self._out.close()
        self._err.close()


class Isolated(Service):
    """A service in an interpreter of its own that inherits `PATH` alone from the environment of the tests.

    `under`: a command that runs it, such as `strace`, as the process that it becomes. `home` is its home folder, its
    temporary folder and the folder that it is started in.
    """

    def __init__(self, *arguments: str, home: Path, under: Sequence[str] = (), **environment: str) -> None:
        self._home, self._under = home, under
        super().__init__(*arguments, **environment)

    def _start(self, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        folders = dict.fromkeys(("HOME", "TMPDIR"), str(self._home))
        return subprocess.Popen(
            [*self._under, sys.executable, "-P", "-m", "openmemory", *arguments],
            stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, start_new_session=True, cwd=self._home,
            # Compiled modules are part of the installation.
            env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **folders, **environment},
        )  # fmt: skip


@contextmanager
def short_parent() -> Iterator[Path]:
    """A new folder for data folders: short enough for unix sockets, reachable by any account."""
    parent = new_folder()
    parent.chmod(0o755)
    try:
        yield parent
    finally:
        shutil.rmtree(parent)


@contextmanager
def starting(folder: Path, *always: str) -> Iterator[Callable[..., Service]]:
    """Starts services on the folder and a free port, with some arguments always; ends them after the block."""
    started: list[Service] = []

    def start(*arguments: str, **environment: str) -> Service:
        started.append(Service("--data-dir", str(folder), "--port", "0", *always, *arguments, **environment))
        return started[-1]

    try:
        yield start
    finally:
        for service in started:
            service.close()


def until(condition: Callable[[], bool], within: float) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)
