"""Working off the queue: a few captures at once in every process, again with growing pauses until they succeed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any
from uuid import UUID

from sqlalchemy import func, update

from openmemory.audit import audit_log
from openmemory.audit.audit_log import Event as AuditEvent
from openmemory.capture import queue, rows, usage
from openmemory.capture.applying import Applied, Applying
from openmemory.capture.extraction import BadAnswer, Cost, Extraction, Extractor
from openmemory.capture.models import Capture, Status
from openmemory.capture.queue import Claimed
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.database.retry import again
from openmemory.errors import Forbidden, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door, Principal, Scope
from openmemory.index.sync.delivery import Deliverer
from openmemory.llm.port import LlmUnavailable
from openmemory.memories.analyze import Maintenance
from openmemory.memories.intake import Intake

log = logging.getLogger(__name__)

LEASE = 60.0
"""Seconds after which another process takes over from one that died. While one works it renews."""

RENEW_AFTER = 15.0
"""Seconds between two renewals."""

IDLE = 5.0
"""Seconds between two looks for what other processes took in, or left. What this one takes in wakes it at once."""

FIRST_PAUSE, LAST_PAUSE = 2.0, 900.0
"""Seconds until a capture is tried again: the pause doubles with every attempt."""

AWAY, LONGEST_AWAY = 1.0, 60.0
"""Seconds that nothing is asked of a model that did not answer; doubled each time."""

Steps = asyncio.Queue[int | None]

MOST_BAD_ANSWERS = 5
"""Attempts whose answers could not be used, after which somebody has to look at the text."""


class Worker:
    """Asks the language model about captures and carries out what it decides.

    A capture is applied in the transaction that says that it is done, under its lease: so exactly once, whoever is
    killed when.
    """

    def __init__(
        self,
        database: Database,
        extractor: Extractor,
        delivery: Deliverer,
        *,
        intake: Intake,
        maintenance: Maintenance,
        settings: Settings,
    ) -> None:
        self._database = database
        self.extractor = extractor
        self._delivery = delivery
        self._intake = intake
        self._maintenance = maintenance
        self._settings = settings
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self._working: set[asyncio.Task[None]] = set()
        self._busy: set[UUID] = set()
        self._watched: dict[UUID, set[Steps]] = {}
        self._away = 0.0
        self._away_until = 0.0
        self.attempts: Counter[str] = Counter()
        """Attempts of this process by how they ended: done, unavailable, bad_answer, forbidden or error."""
        self.spent = Cost()
        """What all of them took of the language model."""

    def start(self) -> None:
        """Work in the background until `stop`."""
        self._loop = asyncio.create_task(self._run(), name="captures")

    async def stop(self) -> None:
        """Stop; what is unfinished is taken up when its lease has ended."""
        for task in (self._loop, *self._working):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._loop = None

    def wake(self) -> None:
        """Say that there is something to do."""
        self._wake.set()

    @contextmanager
    def watching(self, id_: UUID) -> Iterator[Steps]:
        """What this process does about a capture while the block runs: the number of an attempt when it begins, and
        None when it is over, or none is of use now."""
        steps: Steps = asyncio.Queue()
        self._watched.setdefault(id_, set()).add(steps)
        try:
            yield steps
        finally:
            watching = self._watched.get(id_, set())
            watching.discard(steps)
            if not watching:
                self._watched.pop(id_, None)

    async def prune(self) -> None:
        """Remove what is over for `capture.keep` days; a job calls this."""
        async with self._database.statement() as tx:
            await queue.prune(tx, days=self._settings.capture.keep)

    async def _run(self) -> None:
        pause = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            try:
                pause = await self._fill()
            except Unavailable as error:  # of which the log hears from `database`
                log.debug("captures wait: %s", error)
                pause = 1.0
            except Exception:
                log.exception("captures wait; they go on in a moment")
                pause = 1.0

    async def _fill(self) -> float:
        """Begin as many as there is room for; returns the seconds until the next look."""
        while len(self._working) < self._settings.llm.concurrency:
            if (rest := self._away_until - time.monotonic()) > 0:
                self._give_up_waiting()
                return min(rest, IDLE)
            async with self._database.transaction() as tx:
                claimed = await queue.claim(tx, lease=LEASE)
            if claimed is None:
                async with self._database.statement() as tx:
                    due = await queue.seconds_until_due(tx)
                # What is due and not taken waits for another of the same user, whose end wakes us, or is elsewhere.
                return IDLE if due is None or due <= 0 else min(IDLE, max(0.05, due))
            task = asyncio.create_task(self._work(claimed), name=f"capture {claimed.id}")
            self._working.add(task)
            task.add_done_callback(self._ended)
        return IDLE

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._wake.set()

    async def _work(self, claimed: Claimed) -> None:
        self._busy.add(claimed.id)
        self._step(claimed.id, claimed.attempts)
        try:
            await self._attempt(claimed)
        except Exception:
            log.exception("a capture waits for its lease to end")
        finally:
            self._busy.discard(claimed.id)
            self._step(claimed.id, None)

    async def _attempt(self, claimed: Claimed) -> None:
        extraction = Extraction()
        ended = "error"
        try:
            async with self._holding(claimed):
                caller = self._caller(claimed)
                await self.extractor.extract(caller, rows.said(claimed), extraction)
            await self._apply(claimed, caller, extraction)
            self._away, ended = 0.0, "done"
        except LlmUnavailable as error:
            ended = "unavailable"
            self._pause(error)
            await self._postponed(claimed, extraction, str(error), wait=error.retry_after or 0.0)
            self._give_up_waiting()
        except BadAnswer as error:
            self._away, ended = 0.0, "bad_answer"
            await self._postponed(claimed, extraction, str(error), bad=True)
        except Forbidden as error:
            ended = "forbidden"
            await self._postponed(claimed, extraction, error.message, over=True)
        except Unavailable as error:
            log.debug("a capture waits: %s", error)  # its lease ends
        except Exception as error:
            log.exception("a capture failed; it is tried again")
            await self._postponed(claimed, extraction, f"{type(error).__name__}, which the log tells of", bad=True)
        finally:
            self.attempts[ended] += 1
            self.spent.also(extraction.cost)

    def _caller(self, claimed: Claimed) -> Caller:
        """Who ordered it, with the rights of the credential that it came with."""
        known = claimed.principal
        principal = Principal(
            known["id"],
            known["name"],
            namespaces=None if known["namespaces"] is None else tuple(known["namespaces"]),
            scopes=frozenset(Scope(scope) for scope in known["scopes"]),
            door=Door.JOB,
        )
        return Caller(
            claimed.user_id, claimed.user_name, claimed.app_id, claimed.app_name,
            default=self._settings.access.default, principal=principal,
        )  # fmt: skip

    @again
    async def _apply(self, claimed: Claimed, caller: Caller, extraction: Extraction) -> None:
        async with self._database.transaction() as tx:
            if not await queue.held(tx, claimed):
                log.warning("a capture was taken over by another process; nothing is done twice")
                await usage.note(tx, claimed.app_id, claimed.namespace, extraction.cost)
                return
            like = rows.options(claimed.options)
            applied = await Applying(tx, caller, self._intake, like).all(extraction.decided)
            await tx.execute(
                update(Capture)
                .where(Capture.id == claimed.id)
                .values(_finished(applied) | _spent(extraction))
            )  # fmt: skip
            detail = {"capture": str(claimed.id), "refused": len(applied.refused)}
            await audit_log.record(tx, caller, AuditEvent.CAPTURE_APPLY, applied.memory_ids, detail=detail)
            await usage.note(tx, claimed.app_id, claimed.namespace, extraction.cost, became=Status.DONE)
        self._delivery.wake()
        self._maintenance.wrote(applied.written)

    async def _postponed(
        self,
        claimed: Claimed,
        extraction: Extraction,
        error: str,
        *,
        wait: float = 0.0,
        bad: bool = False,
        over: bool = False,
    ) -> None:
        """Note a failed attempt. `bad`: one of few; `over`: there will be no other."""
        log.warning("capture %s: attempt %d failed: %s", claimed.id, claimed.attempts, error)
        over = over or (bad and claimed.bad_answers + 1 >= MOST_BAD_ANSWERS)
        pause = max(wait, min(LAST_PAUSE, FIRST_PAUSE * 2 ** min(claimed.attempts - 1, 20)))
        values: dict[str, Any] = {
            "status": Status.FAILED if over else Status.PENDING,
            "error": error,
            "holder": None,
            "bad_answers": Capture.bad_answers + int(bad),
            "due_at": func.now() + func.make_interval(0, 0, 0, 0, 0, 0, pause),
            "updated_at": func.now(),
        }
        if over:
            values["finished_at"] = func.now()
        try:
            async with self._database.transaction() as tx:
                held = await queue.held(tx, claimed)
                if held:
                    await tx.execute(
                        update(Capture).where(Capture.id == claimed.id).values(values | _spent(extraction))
                    )
                became = Status.FAILED if held and over else None
                await usage.note(tx, claimed.app_id, claimed.namespace, extraction.cost, became=became)
        except Unavailable as away:
            log.debug("a capture waits: %s", away)  # its lease ends

    def _pause(self, error: LlmUnavailable) -> None:
        """Ask nothing of a model that is away for a while: what waits would fail one by one."""
        now = time.monotonic()
        if now >= self._away_until:  # those that were asked at once fail as one
            self._away = min(LONGEST_AWAY, 2 * self._away or AWAY)
        wait = max(self._away, min(LONGEST_AWAY, error.retry_after or 0.0))
        self._away_until = max(self._away_until, now + wait)

    def _give_up_waiting(self) -> None:
        """Tell those whose captures nobody works on that it will take longer."""
        for id_ in self._watched.keys() - self._busy:
            self._step(id_, None)

    def _step(self, id_: UUID, attempt: int | None) -> None:
        for steps in self._watched.get(id_, ()):
            steps.put_nowait(attempt)

    @asynccontextmanager
    async def _holding(self, claimed: Claimed) -> AsyncIterator[None]:
        """Renew the lease while the block runs."""
        renewing = asyncio.create_task(self._renew(claimed), name="lease of a capture")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, claimed: Claimed) -> None:
        while True:
            await asyncio.sleep(RENEW_AFTER)
            try:
                async with self._database.statement() as tx:
                    await queue.renew(tx, claimed, lease=LEASE)
            except Unavailable as error:
                log.warning("a lease could not be renewed: %s", error)


def _finished(applied: Applied) -> dict[str, Any]:
    return {
        "status": Status.DONE,
        "holder": None,
        "error": None,
        "operations": applied.operations,
        "refused": [each.model_dump(mode="json", exclude_none=True) for each in applied.refused],
        "memory_ids": applied.memory_ids,
        "finished_at": func.now(),
        "updated_at": func.now(),
    }


def _spent(extraction: Extraction) -> dict[str, Any]:
    cost = extraction.cost
    return {
        "model": cost.model,
        "calls": Capture.calls + cost.calls,
        "prompt_tokens": Capture.prompt_tokens + cost.prompt_tokens,
        "completion_tokens": Capture.completion_tokens + cost.completion_tokens,
        "seconds": Capture.seconds + cost.seconds,
    }
