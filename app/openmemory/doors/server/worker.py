"""A worker of `openmemory serve --workers N`: serves on sockets and stores that its parent has opened."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import sys
import threading
import time
from base64 import b64decode, b64encode
from dataclasses import dataclass

from openmemory.config.settings import Settings
from openmemory.doors.server.exits import Exit, exit_of, one_line
from openmemory.doors.server.processes import loop_factory, serve_stores
from openmemory.doors.server.stopping import PATIENCE, Stopping
from openmemory.errors import OpenMemoryError
from openmemory.stores import Stores
from openmemory.telemetry import logging

_STANDARD_INPUT = 0


@dataclass(frozen=True, slots=True)
class WorkerInstructions:
    """The instructions for a worker. `sockets` and `ready` are descriptors that it inherits."""

    settings: Settings
    stores: Stores
    sockets: list[int]
    ready: int

    def encode(self) -> bytes:
        """Returns one line that includes the secrets: for a pipe, not for a log or an argument."""
        return b64encode(pickle.dumps((self.settings, self.stores, self.sockets, self.ready)))

    @classmethod
    def decode(cls, line: bytes) -> WorkerInstructions:
        """Returns the instructions in a line of the parent's, whom the worker trusts with everything."""
        return cls(*pickle.loads(b64decode(line)))  # noqa: S301


def main() -> None:
    """Serves until the parent requests a stop or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    order = WorkerInstructions.decode(_line())
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    logging.set_up_logging(order.settings.log)
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(order))
    except OpenMemoryError as error:
        print(f"openmemory: {one_line(error)}", file=sys.stderr)
        sys.exit(exit_of(error))
    except SystemExit:  # raised by uvicorn, with its own code, after it has logged why the application did not start
        sys.exit(Exit.FAILED)


async def _serve(order: WorkerInstructions) -> None:
    stopping = Stopping()
    sockets = [socket.socket(fileno=number) for number in order.sockets]

    def ready() -> None:
        os.write(order.ready, b"1")
        os.close(order.ready)

    with stopping.on_signals():
        await serve_stores(order.settings, order.stores, sockets, stopping, ready)


def _line() -> bytes:
    """Returns the first line of standard input. The read is unbuffered, because the lock of a buffer would outlive the
    thread that reads."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(_STANDARD_INPUT, 1 << 16)
        if not more:
            sys.exit(Exit.FAILED)  # the parent is gone
        line += more
    return line


def _end_with_parent() -> None:
    """Stops this process when standard input ends, which happens when the parent is gone. Then nobody would end this
    process if it hung."""
    while os.read(_STANDARD_INPUT, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(Exit.FAILED)


if __name__ == "__main__":
    main()
