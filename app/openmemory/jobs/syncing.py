"""Triggers the sync: on schedule, at startup, and soon after an unavailable service recovers."""

from __future__ import annotations

import asyncio
import logging

from openmemory.config.legacy_env import SWITCH
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.port import IndexUnavailable
from openmemory.index.sync.reconcile import SyncRunning
from openmemory.jobs.on_demand import OnDemand
from openmemory.services import Services

FIRST_RETRY, LAST_RETRY = 5.0, 60.0
"""Seconds after which a failed sync is retried: the pause doubles from the first to the last."""

SETTLED = 40.0
"""Seconds after a recovery until the stores are compared once more, because other replicas may notice it later."""

log = logging.getLogger(__name__)


class Syncing:
    """Runs one sync at a time in this process. Requests during a sync run after it."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._trigger = ""
        self._pause = FIRST_RETRY
        self._retry: asyncio.TimerHandle | None = None
        self._second: asyncio.TimerHandle | None = None
        self._told = False
        self._runs = OnDemand(self._sync, "sync")
        services.spaces.on_recovery = self.recovered

    def ask(self, trigger: str) -> None:
        """Requests a sync now, or as soon as the current one ends."""
        self._trigger = trigger
        self._runs.ask()

    def recovered(self) -> None:
        """Requests a sync now and another one after `SETTLED` seconds."""
        self.ask("recovery")
        self._second = self._later(self._second, SETTLED, "recovery")

    async def close(self) -> None:
        """Cancels the current sync. The next start continues it."""
        self._services.spaces.on_recovery = None
        for timer in (self._retry, self._second):
            if timer is not None:
                timer.cancel()
        await self._runs.close()

    def _tell_variable(self, error: Exception) -> None:
        """Logs once which variable of the old OpenMemory points to a Qdrant that no longer exists."""
        _, name = self._services.settings.inherited.values.get(("qdrant", "url"), ("", ""))
        if name and not self._told and isinstance(error, IndexUnavailable):
            self._told = True
            log.warning(
                "qdrant.url comes from %s of the old OpenMemory, and nothing answers there: unset it for the"
                " built-in index, or %s=off; until then searches find by words alone",
                name, SWITCH,
            )  # fmt: skip

    def _again(self, trigger: str) -> None:
        self._retry = self._later(self._retry, self._pause, trigger)
        self._pause = min(LAST_RETRY, 2 * self._pause)

    def _later(self, timer: asyncio.TimerHandle | None, seconds: float, trigger: str) -> asyncio.TimerHandle:
        if timer is not None:
            timer.cancel()
        return asyncio.get_running_loop().call_later(seconds, self.ask, trigger)

    async def _sync(self) -> None:
        trigger = self._trigger
        try:
            done = await self._services.reconciler.sync(trigger=trigger)
        except SyncRunning:
            log.info("sync: another run is not finished")
            if trigger != "schedule":
                self._again(trigger)
        except (IndexUnavailable, EmbedderUnavailable) as error:
            log.warning("sync: not now: %s", error)
            self._tell_variable(error)
            self._again("retry")
        except Unavailable as error:  # `database` logs this
            log.debug("sync: not now: %s", error)
            self._again("retry")
        else:
            self._pause = FIRST_RETRY
            log.info(
                "sync: %d memories, %d written, %d deleted, %d embedded, %d errors in %.1f s",
                done.total_memories, done.memories_synced, done.deleted, done.embedded, done.errors, done.seconds,
            )  # fmt: skip
