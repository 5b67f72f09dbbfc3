"""The running service: one event loop, the stores, the application and the web server around each other."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socket import socket

import uvicorn
from starlette.types import ASGIApp

from app import logs
from app.cli.exits import Exit
from app.cli.sockets import url_of
from app.config import Settings
from app.services import VERSION, Services, open_services

log = logging.getLogger(__name__)

_PATIENCE_WITH_CLIENTS = 1
"""Seconds that open requests get to finish. Server-sent events never do."""
_PATIENCE = 4.5
"""Seconds after which the process ends, whatever has not closed. Nothing that was acknowledged depends on closing."""
_YOUNG = 20_000
"""New objects after which the collector looks through them. One search makes some thousands, so that Python's own 700
would mean several looks in each: 3 % of its time."""
_SAME_KEYSTROKE = 0.5
"""Seconds within which signals count once: a terminal and a wrapper such as `uv run` both pass on one Ctrl-C."""


def run(settings: Settings, sockets: list[socket]) -> None:
    """Serve on the sockets until a signal.

    Raises:
        SetupError: the stores cannot be opened as configured.
    """
    logs.set_up(settings.log)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, sockets))
    except SystemExit:  # uvicorn's, with a code of its own, after it has logged why the application did not start
        sys.exit(Exit.FAILED)


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.Loop


async def _serve(settings: Settings, sockets: list[socket]) -> None:
    url = url_of(settings.host, sockets)
    stopping = _Stopping()
    with stopping.on_signals():
        try:
            async with open_services(settings, listen=url) as services:
                # The application takes a second to import: in a thread, beside the model's and the index's opening.
                warming = asyncio.create_task(services.warm())
                app = (await asyncio.to_thread(_application))(services)
                logs.set_up(settings.log)  # again: the MCP SDK has installed a handler of its own
                config = uvicorn.Config(
                    app,
                    log_config=None,
                    log_level="warning",
                    access_log=False,
                    server_header=False,
                    http="httptools",
                    ws="none",
                    lifespan="on",
                    # Longer than clients keep idle connections, so that it is never the server that drops one.
                    timeout_keep_alive=75,
                    timeout_graceful_shutdown=_PATIENCE_WITH_CLIENTS,
                )
                for name in ("uvicorn.error", "apscheduler.executors.default"):
                    logging.getLogger(name).addFilter(_is_failure)
                server = _Server(config, services, url)
                stopping.end(server)
                await server.serve(sockets=sockets)
                warming.cancel()
        except asyncio.CancelledError:
            if not stopping.asked:
                raise


def _application() -> Callable[[Services], ASGIApp]:
    from app.main import create_app

    return create_app


class _Server(uvicorn.Server):
    """The web server; it leaves signals to us and says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, services: Services, url: str) -> None:
        super().__init__(config)
        self._services = services
        self._url = url

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await super().startup(sockets)
        # What exists now stays for good: the collector need not look at it again and again, 100 ms each time.
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG)
        self._services.folder.publish(self._url)
        _say(_doors(self._services, self._url))


class _Stopping:
    """What signals ask for: the first ends everything in good order, the next one at once."""

    def __init__(self) -> None:
        self.asked: float | None = None
        self._server: _Server | None = None
        self._task = asyncio.current_task()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        # Under nohup a closed terminal is to be ignored; else it is a reason to stop like the others.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._signalled)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def end(self, server: _Server) -> None:
        """From now on, stopping means to end this server."""
        self._server = server
        server.should_exit = self.asked is not None

    def _signalled(self) -> None:
        now = time.monotonic()
        if self.asked is not None:
            if now - self.asked > _SAME_KEYSTROKE:
                os._exit(1)
            return
        self.asked = now
        deadline = threading.Timer(_PATIENCE, _give_up)
        deadline.daemon = True
        deadline.start()
        log.info("stopping")
        if self._server is not None:
            self._server.should_exit = True
        elif self._task is not None:
            self._task.cancel()


def _is_failure(record: logging.LogRecord) -> bool:
    """False for what is said about event streams and jobs that stopping cuts off."""
    cancelled = record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError)
    return not cancelled and not str(record.msg).startswith("Cancel %s running task")


def _give_up() -> None:
    log.warning("not everything closed in time; ending anyway")
    os._exit(0)


def _doors(services: Services, url: str) -> list[str]:
    settings = services.settings
    postgres = "PostgreSQL on a server" if settings.database.url.get_secret_value() else "PostgreSQL built in"
    qdrant = f"Qdrant at {settings.qdrant.url}" if settings.qdrant.url else "Qdrant built in"
    return [
        f"OpenMemory {VERSION} is ready.",
        f"  REST              {url}/api/v1",
        f"  API documentation {url}/docs",
        f"  MCP               {url}/mcp",
        f"  MCP over SSE      {url}/mcp/sse",
        f"  MCP of OpenMemory {url}/mcp/{{client}}/sse/{{user}}",
        f"  Data folder       {services.folder.path} ({postgres}, {qdrant})",
    ]


def _say(lines: list[str]) -> None:
    """Print for whoever still reads; the service outlives the reader of its output."""
    try:
        print("\n".join(lines), flush=True)
    except OSError:
        # What is left in the buffer would fail again, and change the exit code, when the interpreter ends.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
