"""`python -m openmemory` in processes of its own that need not import it first, which is most of what a start costs.

One process for all tests of a worker has the modules imported and forks whenever one is wanted; what is forked runs the
command from its first line to its last exit handler, with arguments, environment and streams of its own. It does not
take apart what was imported, which takes longer than most commands. Where a start itself is tested, or where processes
cannot be forked safely, a new interpreter is started as ever.

Run as `python -m tests.warm`, this module is the process that forks.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).parents[1]
_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!i")
_MODULES = (
    *(f"openmemory.doors.cli.{name}" for name in ("commands", "client", "finding", "output")),
    *(
        f"openmemory.doors.server.{name}"
        for name in ("application", "hosting", "processes", "sockets", "web", "workers")
    ),
    "openmemory.index.engine.index", "openmemory.index.qdrant", "httpx", "psycopg",
    "uvloop",
)  # fmt: skip
"""None of them may start a thread when it is imported: a fork would be without it."""

HOME = Path.home()
"""A folder of no project."""

MAX_SECONDS = 90.0
"""Seconds that a command may take which is run to its end."""


class Command:
    """One command, in a session of its own: what the tests need of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: Sequence[str],
        streams: Sequence[int],
        environment: Mapping[str, str],
        cwd: Path | None = None,
    ) -> None:
        """`streams`: the descriptors that are its standard input, output and error; they stay the caller's."""
        self.args = ("python", "-m", "openmemory", *arguments)
        self.returncode: int | None = None
        self._ends, theirs = os.pipe()
        try:
            order = {"arguments": list(arguments), "environment": dict(environment), "folder": str(_folder(cwd))}
            _forker().order(json.dumps(order).encode(), [*streams, theirs])
        except BaseException:
            os.close(self._ends)
            raise
        finally:
            os.close(theirs)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Its exit code if it has ended."""
        if self.returncode is None and select.select([self._ends], [], [], 0)[0]:
            self._note()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended."""
        if self.returncode is None:
            if not select.select([self._ends], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            self._note()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal; one that has ended is fine."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _note(self) -> None:
        self.returncode = self._number()
        # Until we have seen that it ended it stays a process that can be asked after, as a child of ours would.
        _forker().order(json.dumps({"bury": self.pid}).encode())
        os.read(self._ends, 1)
        os.close(self._ends)

    def _number(self) -> int:
        told = os.read(self._ends, _NUMBER.size)
        if len(told) != _NUMBER.size:
            raise RuntimeError("the process that forks has ended")
        number: int = _NUMBER.unpack(told)[0]
        return number


def start(
    arguments: Sequence[str], *, stdout: IO[bytes], stderr: IO[bytes], environment: Mapping[str, str]
) -> Command | subprocess.Popen[bytes]:
    """Start `python -m openmemory` with nothing on its standard input, in a session of its own."""
    if not available():
        return subprocess.Popen(
            [sys.executable, "-m", "openmemory", *arguments],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(environment), start_new_session=True,
            cwd=_folder(None),
        )  # fmt: skip
    with Path(os.devnull).open("rb") as nothing:
        return Command(arguments, [nothing.fileno(), stdout.fileno(), stderr.fileno()], environment)


def run(
    *arguments: str, stdin: str | None = None, cwd: Path | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m openmemory` to its end, as `subprocess.run` does; without `stdin` there is nothing to read.
    Of settings its environment has these alone.

    Raises:
        subprocess.TimeoutExpired: it has not ended after `MAX_SECONDS` seconds; then it is killed.
    """
    environment = clean_environment() | settings
    if not available():
        return subprocess.run(
            [sys.executable, "-m", "openmemory", *arguments],
            check=False, input=stdin, stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True,
            text=True, timeout=MAX_SECONDS, env=environment, cwd=_folder(cwd),
        )  # fmt: skip
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    write, out, err = os.fdopen(pipes[0][1], "wb"), os.fdopen(pipes[1][0], "rb"), os.fdopen(pipes[2][0], "rb")
    with write, out, err, ThreadPoolExecutor(3) as pool:
        try:
            command = Command(arguments, theirs, environment, cwd)
        finally:
            for number in theirs:
                os.close(number)
        try:
            pool.submit(_feed, write, (stdin or "").encode())
            said = [pool.submit(stream.read) for stream in (out, err)]
            code = command.wait(MAX_SECONDS)
        finally:
            command.kill()
        stdout, stderr = (reading.result(MAX_SECONDS).decode() for reading in said)
    return subprocess.CompletedProcess(command.args, code, stdout, stderr)


def _feed(pipe: IO[bytes], text: bytes) -> None:
    with suppress(BrokenPipeError), pipe:  # it need not read to the end
        pipe.write(text)


def _folder(named: Path | None) -> Path:
    """The folder of a command. The one of the tests is a project, whose commands write there."""
    folder = named or Path.cwd()
    return HOME if folder == _ROOT else folder


def clean_environment() -> dict[str, str]:
    """The environment of the tests without settings of the product, and without the arguments of a `make`."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("OPENMEMORY_", "MAKE"))}


def available() -> bool:
    """Whether this system forks processes safely that have imported so much."""
    return sys.platform == "linux"


class _Forker:
    """The process that forks, as its owner sees it; it ends when its owner does."""

    def __init__(self) -> None:
        self._door, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm"],
                cwd=_ROOT,
                stdin=theirs,
                stdout=subprocess.DEVNULL,
                # numpy would start threads otherwise. What is read at an import must not be of whoever runs the tests.
                env=clean_environment() | {"OPENBLAS_NUM_THREADS": "1"},
                start_new_session=True,
            )
        self._lock = threading.Lock()
        atexit.register(self.close)

    def order(self, order: bytes, descriptors: Sequence[int] = ()) -> None:
        with self._lock:
            socket.send_fds(self._door, [_LENGTH.pack(len(order))], descriptors)
            self._door.sendall(order)

    def close(self) -> None:
        self._door.close()
        self._process.wait(10)


@cache
def _forker() -> _Forker:
    return _Forker()


def _serve(door: socket.socket) -> list[str] | None:
    """Fork what is ordered until nobody is there to order, and end what still runs then.

    Returns in a forked process too, with the arguments of its command.
    """
    ends: dict[int, int] = {}
    told: set[int] = set()
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    while True:
        ready = select.select([door, awake], [], [])[0]
        if awake in ready:
            os.read(awake, 100)
            _tell(ends, told)
        if door in ready:
            head, descriptors, _, _ = socket.recv_fds(door, _LENGTH.size, 4)
            if not head:
                for pid in ends.keys() - told:
                    os.kill(pid, signal.SIGTERM)
                return None
            order = json.loads(_exactly(door, _LENGTH.unpack(head)[0]))
            if "bury" in order:
                os.waitpid(order["bury"], 0)
                told.discard(order["bury"])
                os.close(ends.pop(order["bury"]))
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for number in (awake, wake, *ends.values()):
                    os.close(number)
                _become(order, descriptors)
                return list(order["arguments"])
            *streams, end = descriptors
            for number in streams:
                os.close(number)
            os.write(end, _NUMBER.pack(pid))
            ends[pid] = end


def _tell(ends: dict[int, int], told: set[int]) -> None:
    """Tell of those that have ended how they did."""
    for pid in ends.keys() - told:
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            told.add(pid)
            code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            with suppress(BrokenPipeError):  # whoever started it does not wait for it
                os.write(ends[pid], _NUMBER.pack(code))


def _become(order: dict[str, Any], descriptors: Sequence[int]) -> None:
    os.setsid()
    for number, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    # The interpreter's own still believe in what was there when it started.
    sys.stdin = sys.__stdin__ = os.fdopen(0, closefd=False)
    sys.stdout = sys.__stdout__ = os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(order["environment"])
    os.chdir(order["folder"])


def _exactly(door: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        found += door.recv(length - len(found))
    return found


def _leave(codes: list[int]) -> None:
    """Ends the process with the last of the codes, without the work that the interpreter would still do."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(codes[-1])


def _main() -> None:
    codes = [1]
    atexit.register(_leave, codes)  # registered first, and so the last to run
    gc.disable()
    for module in _MODULES:
        import_module(module)
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        raise RuntimeError(f"{threads} threads run; one may, or what is forked is not whole")
    gc.collect()
    gc.freeze()
    gc.enable()
    # Standard input becomes that of what is forked.
    door = socket.socket(fileno=os.dup(0))
    arguments = _serve(door)
    door.close()
    if arguments is not None:
        sys.argv[1:] = arguments
        try:
            runpy.run_module("openmemory", run_name="__main__", alter_sys=True)
        except SystemExit as end:
            codes.append(end.code if isinstance(end.code, int) else 0 if end.code is None else 1)
            raise
    codes.append(0)


if __name__ == "__main__":
    _main()
