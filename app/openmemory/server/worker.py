"""A worker of `openmemory serve --workers N`: serves on sockets and stores that its parent has opened."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from openmemory.cli.exits import Exit, exit_of, one_line
from openmemory.config.settings import Settings
from openmemory.errors import OpenMemoryError
from openmemory.server.processes import loop_factory, serve_stores
from openmemory.server.stopping import PATIENCE, Stopping
from openmemory.services import Stores
from openmemory.telemetry import logging

_STANDARD_INPUT = 0


@dataclass(frozen=True, slots=True)
class WorkerInstructions:
    """The instructions for a worker. `sockets` and `ready` are descriptors that it inherits."""

    settings: Settings
    stores: Stores
    sockets: list[int]
    ready: int

    def to_json(self) -> bytes:
        """Returns one line that includes the secrets: for a pipe, not for a log or an argument."""
        stores = self.stores
        return json.dumps(
            {
                # Unset fields stay unset: a default is nobody's choice.
                "settings": _plain(self.settings.model_dump(exclude_unset=True)),
                "folder": str(stores.folder),
                "database": stores.database,
                "index_socket": str(stores.index_socket) if stores.index_socket else None,
                "index_lease": stores.index_lease,
                "local_key": stores.local_key,
                "sockets": self.sockets,
                "ready": self.ready,
            }
        ).encode()

    @classmethod
    def from_json(cls, line: bytes) -> WorkerInstructions:
        """Returns the instructions that `to_json` wrote."""
        data = json.loads(line)
        stores = Stores(
            folder=Path(data["folder"]),
            database=data["database"],
            shared=True,
            index_socket=Path(data["index_socket"]) if data["index_socket"] else None,
            index_lease=data["index_lease"],
            local_key=data["local_key"],
        )
        return cls(Settings.model_validate(data["settings"]), stores, data["sockets"], data["ready"])


def main() -> None:
    """Serves until told to stop, or until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells when to stop
    order = WorkerInstructions.from_json(_line())
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
    found = b""
    while not found.endswith(b"\n"):
        more = os.read(_STANDARD_INPUT, 1 << 16)
        if not more:
            sys.exit(Exit.FAILED)  # the parent is gone
        found += more
    return found


def _end_with_parent() -> None:
    """Stops this process when standard input ends, which happens when the parent is gone. Then nobody would end this
    process if it hung."""
    while os.read(_STANDARD_INPUT, 1):
        continue
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(Exit.FAILED)


def _plain(value: Any) -> Any:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, tuple):
        return [_plain(inner) for inner in value]
    return value


if __name__ == "__main__":
    main()
