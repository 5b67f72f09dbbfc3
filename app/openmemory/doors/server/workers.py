"""Runs `openmemory serve --workers N`: a parent process owns the stores and the sockets and keeps N workers that serve.

The parent answers no request. It owns the data folder, runs the built-in stores, and passes the listening sockets to
its workers: the kernel gives each connection to an idle one. A worker that dies is replaced; workers end with the
parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from contextlib import AsyncExitStack
from socket import socket

from openmemory.config.settings import Settings
from openmemory.doors.server.processes import doors, log_inherited, loop_factory, say, settle
from openmemory.doors.server.sockets import url_of
from openmemory.doors.server.stopping import Stopping
from openmemory.doors.server.worker import WorkerInstructions
from openmemory.embedded.children import Child
from openmemory.errors import SetupError
from openmemory.stores import Stores, open_stores
from openmemory.telemetry.logging import set_up_logging

log = logging.getLogger(__name__)

_STABLE = 60.0
"""Seconds after which the death of a worker no longer counts as a failed restart."""
_MAX_PAUSE = 30.0
_PATIENCE = 2.5
"""Seconds that the workers get to stop. The parent needs the rest of its time to close its own resources."""


def run(settings: Settings, sockets: list[socket]) -> None:
    """Serves on the sockets with `settings.workers` processes until a signal.

    Raises:
        SetupError: the stores cannot be opened as configured, or a worker does not start.
    """
    set_up_logging(settings.log)
    log_inherited(settings)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(settings, sockets))


async def _serve(settings: Settings, sockets: list[socket]) -> None:
    url = url_of(settings.host, sockets)
    stopping = Stopping()
    with stopping.on_signals():
        async with AsyncExitStack() as stack:
            folder, stores = await stack.enter_async_context(
                open_stores(settings, listen=url, workers=settings.workers, serving=True)
            )
            if not settings.qdrant.url:
                from openmemory.doors.server.hosting import hosted_index

                stores = await stack.enter_async_context(hosted_index(stores))

            def ready() -> None:
                settle()
                folder.publish(url)
                say(doors(settings, folder.path, url))

            crew = WorkerProcesses(settings, stores, sockets, ready)
            stopping.end(crew.stop, at_last=crew.kill)
            await crew.work()


class WorkerProcesses:
    """The workers. `ready` is called once, when all of them serve."""

    def __init__(self, settings: Settings, stores: Stores, sockets: list[socket], ready: Callable[[], None]) -> None:
        self._settings = settings
        self._stores = stores
        self._sockets = sockets
        self._ready = ready
        self._stopping = asyncio.Event()
        self._children: dict[int, Child] = {}
        self._serving: set[int] = set()
        self._started = False

    async def work(self) -> None:
        """Keeps the workers running until `stop`.

        Raises:
            SetupError: a worker does not start the first time.
        """
        places = [asyncio.create_task(self._keep(place)) for place in range(1, self._settings.workers + 1)]
        stop_task = asyncio.create_task(self._stopping.wait())
        try:
            # Before that, a worker's task ends only by failing.
            await asyncio.wait([*places, stop_task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.stop()
            await asyncio.wait([stop_task, *places], timeout=_PATIENCE)
            self.kill()
            errors = [error for error in await asyncio.gather(*places, return_exceptions=True) if error is not None]
        if errors:
            raise errors[0]

    def stop(self) -> None:
        """Requests a graceful stop of the workers."""
        self._stopping.set()
        for child in self._children.values():
            child.signal(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the workers that are still alive."""
        for child in self._children.values():
            child.signal(signal.SIGKILL)

    async def _keep(self, place: int) -> None:
        """Keeps one worker running. The next one starts at once if the last one lived long, otherwise after a growing
        pause."""
        loop = asyncio.get_running_loop()
        pause = 0.0
        while not self._stopping.is_set():
            since = loop.time()
            try:
                reason = f"exit status {await self._one(place)}"
            except OSError as error:  # no process or pipe is available: the machine may have one later
                reason = str(error)
            if self._stopping.is_set():
                return
            if not self._started:
                raise SetupError(f"a worker process did not start ({reason}); see its log lines")
            if loop.time() - since > _STABLE:
                pause = 0.0
            log.error("worker %d ended (%s); a new one starts in %g s", place, reason, pause)
            try:
                async with asyncio.timeout(pause):
                    await self._stopping.wait()
            except TimeoutError:
                pause = min(max(0.2, 2 * pause), _MAX_PAUSE)

    async def _one(self, place: int) -> int:
        """Runs one worker to its end and returns its exit code."""
        child = self._start()
        self._children[place] = child
        noting = asyncio.create_task(self._note_ready(place, child))
        try:
            return await child.exited()
        finally:
            noting.cancel()
            await asyncio.wait([noting])
            self._serving.discard(place)
            del self._children[place]
            child.close()

    def _start(self) -> Child:
        listening = [listener.fileno() for listener in self._sockets]
        pipe = os.pipe()
        order = WorkerInstructions(self._settings, self._stores, listening, pipe[1])
        return Child("openmemory.doors.server.worker", order.encode(), inherited=listening, ready=pipe)

    async def _note_ready(self, place: int, child: Child) -> None:
        if not await child.ready():
            return
        self._serving.add(place)
        if self._started:
            log.info("worker %d is running again (process %d)", place, child.pid)
        elif len(self._serving) == self._settings.workers:
            self._started = True
            self._ready()
