"""Processes the capture queue: each process runs a few captures at once and retries them with growing pauses."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import func, update

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.capture import queue, rows, usage, verbatim
from openmemory.capture.applying import Applied, Applying, touched
from openmemory.capture.extraction import BadAnswer, Cost, Extractor, NoModel
from openmemory.capture.models import Capture
from openmemory.capture.queue import ClaimedCapture
from openmemory.capture.schemas import ModelDecisions
from openmemory.capture.status import Status
from openmemory.config.settings import Settings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Forbidden, Invalid, NotFound, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door, Principal, Scope
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.llm.port import LlmUnavailable, PromptRefused, PromptTooLong
from openmemory.memories.analyze import AnalyzeAfterWrites
from openmemory.memories.intake import Intake
from openmemory.serialization.zones import zone_or_none

log = logging.getLogger(__name__)

LEASE = 60.0
"""Seconds after which another process takes over from one that died. A working process renews its lease."""

RENEW_AFTER = 15.0
"""Seconds between two renewals."""

Steps = asyncio.Queue[int | None]

MAX_BAD_ANSWERS = 5
"""Number of unusable answers after which a capture fails. Its text then counts as read until it is tried again, so that
later texts need not wait for it."""

MAX_UNANSWERED = 12
"""Number of attempts after which a capture fails at which the model breaks each time: the texts behind it must not wait
for ever. Twelve attempts take about an hour."""

FIRST_AGAIN, LAST_AGAIN = 900.0, 86_400.0
"""Shortest and longest pause, in seconds, before a failed capture is read again. The pause doubles each time."""


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses of a worker, in seconds.

    >>> Pauses().before_retry(attempts=3)
    8.0
    """

    idle: float = 5.0
    """The pause between two looks for captures of other processes. A capture that this process accepts wakes the worker
    at once."""
    first: float = 2.0
    last: float = 900.0
    """The shortest and the longest pause before a capture is retried. The pause doubles with every attempt."""
    away: float = 1.0
    max_away: float = 60.0
    """The shortest and the longest pause after a model did not answer. The pause doubles each time."""

    def before_retry(self, attempts: int) -> float:
        """The pause after a capture has failed so many times."""
        return min(self.last, self.first * 2.0 ** min(attempts - 1, 20))


class Worker:
    """Asks the language model about captures and carries out its decisions.

    A capture is applied, under its lease, in the same transaction that marks it as done. It is therefore applied
    exactly once, even if a process is killed at any point.
    """

    def __init__(
        self,
        database: Database,
        extractor: Extractor,
        delivery: OutboxDelivery,
        *,
        intake: Intake,
        analyze_after_writes: AnalyzeAfterWrites,
        settings: Settings,
    ) -> None:
        self._database = database
        self.extractor = extractor
        self._delivery = delivery
        self._intake = intake
        self._analyze_after_writes = analyze_after_writes
        self._settings = settings
        self._wake = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self.pauses = Pauses()
        self._working: set[asyncio.Task[None]] = set()
        self._busy: set[UUID] = set()
        self._unrecorded: list[ClaimedCapture] = []
        """The captures whose last attempt could not be recorded. They are released when the database answers."""
        self._watched: dict[UUID, set[Steps]] = {}
        self._away = 0.0
        self._away_until = 0.0
        self._configured = True
        self.attempts: Counter[str] = Counter()
        """Attempts of this process by result: done, unavailable, refused, bad_answer, forbidden or error."""
        self.spent = Cost()
        """The total language model cost of these attempts."""

    def start(self) -> None:
        """Starts the background loop, which runs until `stop`."""
        self._loop = asyncio.create_task(self._run(), name="captures")

    async def stop(self) -> None:
        """Stops the worker. Unfinished captures are picked up again when their leases end."""
        for task in (self._loop, *self._working):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        self._loop = None

    @property
    def away(self) -> bool:
        """True if the configured language model did not answer the last request."""
        return self._away > 0 and self._configured

    def wake(self) -> None:
        """Signals that there is work to do."""
        self._wake.set()

    @contextmanager
    def watching(self, id_: UUID) -> Iterator[Steps]:
        """A queue of this process's steps on a capture while the block runs.

        It receives the number of each attempt when it begins, and None when the attempt ends or no attempt can be made
        now.
        """
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
        """Removes captures that ended more than `capture.keep` days ago. A job calls this."""
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
            except Unavailable as error:  # `database` logs this
                log.debug("processing captures failed: %s", error)
                pause = 1.0
            except Exception:
                log.exception("processing captures failed; retried in 1 s")
                pause = 1.0

    async def _fill(self) -> float:
        """Starts as many captures as the concurrency allows. Returns the seconds until the next check."""
        await self._release()
        while len(self._working) < self._settings.llm.concurrency:
            if (rest := self._away_until - time.monotonic()) > 0:
                self._give_up_waiting()
                return min(rest, self.pauses.idle)
            claimed = await queue.claim(self._database, lease=LEASE)
            if claimed is None:
                async with self._database.statement() as tx:
                    due = await queue.seconds_until_due(tx)
                # A capture that is due but was not claimed waits for another one of the same user, which wakes this
                # loop when it ends, or is being claimed by another process.
                idle = self.pauses.idle
                return idle if due is None or due <= 0 else min(idle, max(0.05, due))
            task = asyncio.create_task(self._work(claimed), name=f"capture {claimed.id}")
            self._working.add(task)
            task.add_done_callback(self._ended)
        return self.pauses.idle

    async def _release(self) -> None:
        """Makes captures whose last attempt could not be recorded due after the usual pause, not after their lease."""
        while self._unrecorded:
            claimed = self._unrecorded[-1]
            async with self._database.statement() as tx:
                await queue.release(tx, claimed, pause=self.pauses.before_retry(claimed.attempts), most=MAX_BAD_ANSWERS)
            self._unrecorded.pop()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._working.discard(task)
        self._wake.set()

    async def _work(self, claimed: ClaimedCapture) -> None:
        self._busy.add(claimed.id)
        self._step(claimed.id, claimed.attempts)
        try:
            await self._attempt(claimed)
        except Exception:
            log.exception("capture %s failed unexpectedly; retried when its lease ends", claimed.id)
        finally:
            self._busy.discard(claimed.id)
            self._step(claimed.id, None)

    async def _attempt(self, claimed: ClaimedCapture) -> None:
        cost = Cost()
        ended = "error"
        try:
            async with self._holding(claimed):
                caller = self._caller(claimed)
                decided = ModelDecisions()
                if await self._unread(claimed, caller):
                    decided = await self.extractor.extract(caller, rows.input_of(claimed), cost)
            await self._apply(claimed, caller, decided, cost)
            self._away, ended = 0.0, "done"
        except PromptRefused as error:
            self._away, ended = 0.0, "refused"
            await self._postpone(claimed, cost, str(error), bad=True, over=isinstance(error, PromptTooLong))
        except LlmUnavailable as error:
            ended, self._configured = "unavailable", not isinstance(error, NoModel)
            self._pause(error)
            await self._postpone(claimed, cost, str(error), wait=error.retry_after or 0.0, broke=error.broke)
            self._give_up_waiting()
        except BadAnswer as error:
            self._away, ended = 0.0, "bad_answer"
            await self._postpone(claimed, cost, str(error), bad=True)
        except Forbidden as error:
            ended = "forbidden"
            await self._postpone(claimed, cost, error.message, over=True)
        except Unavailable as error:
            log.debug("capture %s is retried: %s", claimed.id, error)
            self._unrecorded.append(claimed)
        except Exception as error:
            log.exception("capture %s failed; retried", claimed.id)
            await self._postpone(claimed, cost, f"{type(error).__name__}, which the log tells of", bad=True)
        finally:
            self.attempts[ended] += 1
            self.spent.add(cost)

    def _caller(self, claimed: ClaimedCapture) -> Caller:
        """The caller who sent the capture, with the rights of the credential that it came with."""
        credential = claimed.principal
        principal = Principal(
            credential["id"],
            credential["name"],
            namespaces=None if credential["namespaces"] is None else tuple(credential["namespaces"]),
            scopes=frozenset(Scope(scope) for scope in credential["scopes"]),
            door=Door.JOB,
        )
        access = self._settings.access
        zone = zone_or_none(credential.get("timezone")) or zone_or_none(claimed.timezone) or access.timezone
        return Caller(
            claimed.user_id, claimed.user_name, claimed.app_id, claimed.app_name,
            default=access.default, principal=principal, timezone=zone,
        )  # fmt: skip

    @retry_on_conflict
    async def _apply(self, claimed: ClaimedCapture, caller: Caller, decided: ModelDecisions, cost: Cost) -> None:
        async with self._database.transaction() as tx:
            if not await queue.holds(tx, claimed):
                log.warning("a capture was taken over by another process; nothing is done twice")
                await usage.record(tx, claimed.app_id, claimed.namespace, cost)
                return
            applied = Applied(claimed.operations)
            if await verbatim.untouched(tx, caller, claimed.operations):
                applied = await self._applying(tx, claimed, caller).all(decided)
                applied.operations = await verbatim.superseded(tx, caller, claimed.operations, applied.operations)
            values = _finish_columns(applied) | _spent(cost)
            await tx.execute(update(Capture).where(Capture.id == claimed.id).values(values))
            if cost.calls:
                await queue.retry_failed(tx, model=cost.model)
            detail = {"capture": str(claimed.id), "refused": len(applied.refused)}
            await audit_log.record(tx, caller, AuditAction.CAPTURE_APPLY, applied.memory_ids, detail=detail)
            await usage.record(tx, claimed.app_id, claimed.namespace, cost, became=Status.DONE)
        self._delivery.wake()
        self._analyze_after_writes.wrote(applied.change_count)

    def _applying(self, tx: Tx, claimed: ClaimedCapture, caller: Caller) -> Applying:
        capture_input = rows.input_of(claimed)
        like = replace(rows.options(claimed.options), created_at=capture_input.at)
        turns = () if isinstance(capture_input.what, str) else capture_input.what
        return Applying(tx, caller, self._intake, like, capture_input.at, frozenset(capture_input.verbatim), turns)

    async def _unread(self, claimed: ClaimedCapture, caller: Caller) -> bool:
        """Returns False if the user has changed the memory that holds the text: it is theirs then, and final."""
        if not claimed.operations:
            return True
        async with self._database.transaction() as tx:
            return await verbatim.untouched(tx, caller, claimed.operations)

    async def _postpone(
        self,
        claimed: ClaimedCapture,
        cost: Cost,
        error: str,
        *,
        wait: float = 0.0,
        bad: bool = False,
        broke: bool = False,
        over: bool = False,
    ) -> None:
        """Records a failed attempt. After the quick ones, the text becomes a memory as it is.

        `bad`: the attempt counts toward `MAX_BAD_ANSWERS`. So does one in which the model `broke`, if it has read other
        texts since the last attempt. `over`: the capture has failed.
        """
        log.warning("capture %s: attempt %d failed: %s", claimed.id, claimed.attempts, error)
        try:
            await self._record_failure(claimed, cost, error, wait=wait, bad=bad, broke=broke, over=over)
        except Unavailable as away:
            log.debug("a capture is retried: %s", away)
            self._unrecorded.append(claimed)
        self._delivery.wake()

    @retry_on_conflict
    async def _record_failure(
        self, claimed: ClaimedCapture, cost: Cost, error: str, *, wait: float, bad: bool, broke: bool, over: bool
    ) -> None:
        async with self._database.transaction() as tx:
            became = None
            if await queue.holds(tx, claimed):
                bad = bad or (broke and await queue.answered_others(tx, claimed))
                over = over or (broke and claimed.attempts >= MAX_UNANSWERED)
                wrong = MAX_BAD_ANSWERS if over else claimed.bad_answers + int(bad)
                pause = max(wait, self.pauses.before_retry(claimed.attempts))
                values = _failure_columns(claimed, error, pause, wrong) | _spent(cost)
                became = values["status"] if wrong >= MAX_BAD_ANSWERS > claimed.bad_answers else None
                if wrong >= MAX_BAD_ANSWERS or claimed.attempts >= MAX_BAD_ANSWERS:
                    values |= await self._store_verbatim(tx, claimed)
                await tx.execute(update(Capture).where(Capture.id == claimed.id).values(values))
            await usage.record(tx, claimed.app_id, claimed.namespace, cost, became=became)

    async def _store_verbatim(self, tx: Tx, claimed: ClaimedCapture) -> dict[str, Any]:
        """Stores the text as it is, unless it is stored already. Returns the columns that name the memories."""
        if claimed.operations or rows.is_window(claimed):
            return {}
        parts = verbatim.texts(rows.input_of(claimed).what, self._settings.limits.text)
        try:
            async with tx.begin_nested():
                operations = await verbatim.store(self._applying(tx, claimed, self._caller(claimed)), parts)
        except (Forbidden, Invalid, NotFound) as error:
            log.warning("capture %s: its text is not stored as a memory: %s", claimed.id, error.message)
            return {}
        return {"operations": operations, "memory_ids": sorted(touched(operations))}

    def _pause(self, error: LlmUnavailable) -> None:
        """Stops requests to an unavailable model for a while. Otherwise the waiting captures would fail one by one."""
        now = time.monotonic()
        if now >= self._away_until:  # concurrent requests that fail together count as one failure
            self._away = min(self.pauses.max_away, 2 * self._away or self.pauses.away)
        wait = max(self._away, min(self.pauses.max_away, error.retry_after or 0.0))
        self._away_until = max(self._away_until, now + wait)

    def _give_up_waiting(self) -> None:
        """Tells the watchers of captures that are not being processed to stop waiting."""
        for id_ in self._watched.keys() - self._busy:
            self._step(id_, None)

    def _step(self, id_: UUID, attempt: int | None) -> None:
        for steps in self._watched.get(id_, ()):
            steps.put_nowait(attempt)

    @asynccontextmanager
    async def _holding(self, claimed: ClaimedCapture) -> AsyncIterator[None]:
        """Renews the lease while the block runs."""
        renewing = asyncio.create_task(self._renew(claimed), name="lease of a capture")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, claimed: ClaimedCapture) -> None:
        while True:
            await asyncio.sleep(RENEW_AFTER)
            try:
                async with self._database.statement() as tx:
                    await queue.renew(tx, claimed, lease=LEASE)
            except Unavailable as error:  # `database` logs this once
                log.debug("a lease could not be renewed: %s", error)


def _failure_columns(claimed: ClaimedCapture, error: str, pause: float, bad_answers: int) -> dict[str, Any]:
    """The columns of a capture after a failed attempt."""
    over = bad_answers >= MAX_BAD_ANSWERS
    if over:
        pause = max(pause, min(LAST_AGAIN, FIRST_AGAIN * 2 ** min(max(0, claimed.attempts - MAX_BAD_ANSWERS), 20)))
    return {
        "status": Status.FAILED if over else Status.PENDING,
        "error": error,
        "holder": None,
        "bad_answers": bad_answers,
        "due_at": func.now() + func.make_interval(0, 0, 0, 0, 0, 0, pause),
        "updated_at": func.now(),
    } | ({"finished_at": func.coalesce(Capture.finished_at, func.now())} if over else {})


def _finish_columns(applied: Applied) -> dict[str, Any]:
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


def _spent(cost: Cost) -> dict[str, Any]:
    return {
        "model": cost.model,
        "calls": Capture.calls + cost.calls,
        "prompt_tokens": Capture.prompt_tokens + cost.prompt_tokens,
        "completion_tokens": Capture.completion_tokens + cost.completion_tokens,
        "seconds": Capture.seconds + cost.seconds,
    }
