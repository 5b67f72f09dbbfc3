"""Child processes that run our own code and never outlive their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from openmemory.embedded.processes import exited


class Child:
    """A Python process that runs one of our modules, in its own session so that Ctrl-C in our terminal cannot reach it.

    It reads one line of instructions from standard input, where no other account can see secrets. Then it waits for
    the end of that input, which comes when the parent ends, even by kill -9. It signals readiness by writing to a file
    descriptor that the instructions name.
    """

    def __init__(self, module: str, order: bytes, *, inherited: Sequence[int], ready: tuple[int, int]) -> None:
        """`ready`: both ends of a pipe. The child gets the second one, and this object closes both."""
        self._reading, writing = ready
        try:
            self._process = subprocess.Popen(  # noqa: S603
                # -P: a folder `app` in the working folder must not be imported.
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                pass_fds=(*inherited, writing),
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(self._reading)
            raise
        finally:
            os.close(writing)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which `exited` reports
            self._process.stdin.write(order + b"\n")

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    async def ready(self) -> bool:
        """Wait until it signals readiness; False if it ends before."""
        loop = asyncio.get_running_loop()
        said = asyncio.Event()
        loop.add_reader(self._reading, said.set)
        try:
            await said.wait()
            return bool(os.read(self._reading, 1))
        finally:
            loop.remove_reader(self._reading)

    async def exited(self) -> int:
        """Wait until it has ended, and return its exit code, negative for a signal."""
        while not await exited(self._process, 3600):
            continue
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal. Does nothing if it has ended."""
        self._process.send_signal(number)

    def close(self) -> None:
        """Close its standard input, which asks it to end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self._reading)
