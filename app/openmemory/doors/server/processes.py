"""The running service: one event loop with the stores, the application and the web server."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from socket import socket

import uvicorn
from starlette.types import ASGIApp

from openmemory.config.settings import Settings
from openmemory.doors.server.exits import Exit
from openmemory.doors.server.sockets import url_of
from openmemory.doors.server.stopping import Stopping
from openmemory.doors.server.web import Server, public
from openmemory.services import VERSION, Services, open_services
from openmemory.stores import Stores, open_stores
from openmemory.telemetry.logging import set_up_logging

log = logging.getLogger(__name__)

_PATIENCE_WITH_CLIENTS = 1
"""Seconds that open requests get to finish. Event streams never finish."""
_YOUNG = 20_000
"""New objects after which the garbage collector runs. One search creates some thousands, so Python's own 700 would mean
several runs in each search: 3 % of its time."""


def run(settings: Settings, sockets: list[socket]) -> None:
    """Serves on the sockets until a signal.

    Raises:
        SetupError: the stores cannot be opened as configured.
    """
    set_up_logging(settings.log)
    log_inherited(settings)
    try:
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(_serve(settings, sockets))
    except SystemExit:  # raised by uvicorn, with its own code, after it has logged why the application did not start
        sys.exit(Exit.FAILED)


def log_inherited(settings: Settings) -> None:
    """Logs which variables of older memory servers are used, and which variables have no effect."""
    for line in settings.warnings():
        log.warning("%s", line)
    for line in settings.inherited.lines():
        log.info("%s", line)


def loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """Returns the event loop of the service; None for Python's own."""
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.Loop


async def _serve(settings: Settings, sockets: list[socket]) -> None:
    url = url_of(settings.host, sockets)
    stopping = Stopping()
    with stopping.on_signals():
        async with open_stores(settings, listen=url, serving=True) as (folder, stores):

            def ready() -> None:
                folder.publish(url)
                say(doors(settings, folder.path, url))

            await serve_stores(settings, stores, sockets, stopping, ready)


async def serve_stores(
    settings: Settings, stores: Stores, sockets: list[socket], stopping: Stopping, ready: Callable[[], None]
) -> None:
    """Serves the stores on the sockets until a stop is requested. Calls `ready` when requests are answered."""
    async with open_services(settings, stores=stores) as services:
        # Importing the application takes a second, so a thread does it while the model and the index open.
        warming = asyncio.create_task(services.warm())
        app = (await asyncio.to_thread(_application))(services)
        set_up_logging(settings.log)  # again: the MCP SDK has installed a handler of its own
        for name in ("uvicorn.error", "apscheduler.executors.default"):
            logging.getLogger(name).addFilter(_is_failure)
        server = _Server(public(app, settings, patience=_PATIENCE_WITH_CLIENTS), ready)
        stopping.end(server.stop)
        await server.serve(sockets=sockets)
        warming.cancel()


def _application() -> Callable[[Services], ASGIApp]:
    from openmemory.doors.server.application import create_app

    return create_app


class _Server(Server):
    """The web server. Calls `ready` when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    def stop(self) -> None:
        """Stops gracefully and soon."""
        self.should_exit = True

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        settle()
        self._ready()


def settle() -> None:
    """Exempts existing objects from garbage collection: they stay for good, and each pass over them takes 100 ms."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG)


def _is_failure(record: logging.LogRecord) -> bool:
    """Returns False for log records about event streams and jobs that stopping cuts off."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not str(record.msg).startswith("Cancel %s running task")


def doors(settings: Settings, folder: Path, url: str) -> list[str]:
    """Returns the lines that are printed when the service is ready."""
    postgres = "PostgreSQL on a server" if settings.database.url.get_secret_value() else "PostgreSQL built in"
    qdrant = f"Qdrant at {settings.qdrant.url.rpartition('@')[2]}" if settings.qdrant.url else "Qdrant built in"
    workers = f", {settings.workers} workers" if settings.workers > 1 else ""
    return [
        f"OpenMemory {VERSION} is ready.",
        f"  Page              {url}/",
        f"  REST              {url}/api/v1",
        f"  API documentation {url}/docs",
        f"  MCP               {url}/mcp",
        f"  MCP over SSE      {url}/mcp/sse",
        f"  MCP of OpenMemory {url}/mcp/{{client}}/sse/{{user}}",
        f"  Data folder       {folder} ({postgres}, {qdrant}{workers})",
    ]


def say(lines: list[str]) -> None:
    """Prints the lines if anybody still reads them; the service outlives the reader of its output."""
    try:
        print("\n".join(lines), flush=True)
    except OSError:
        # Data left in the buffer would fail again when the interpreter ends, and change the exit code.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
