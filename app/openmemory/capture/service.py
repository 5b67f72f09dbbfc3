"""The use cases of captures: accept text and conversations, report the result, and undo it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, date
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, insert, select, true, update

from openmemory.access.apps import refuse_if_paused
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.capture import queue, undoing, usage
from openmemory.capture.intake import checked
from openmemory.capture.models import Capture
from openmemory.capture.rows import columns_of, principal_of
from openmemory.capture.schemas import (
    CaptureCreate,
    CapturePage,
    CaptureResult,
    CaptureView,
    Outcome,
    Refusal,
    Usage,
)
from openmemory.capture.status import UNREAD, Status
from openmemory.capture.visibility import own
from openmemory.capture.waiting import Moved, nobody, wait_for_attempt
from openmemory.capture.worker import Worker
from openmemory.config.settings import Settings
from openmemory.database.engine import Database, Tx
from openmemory.database.locks import lock
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import idempotency, validation
from openmemory.memories.intake import Intake
from openmemory.memories.models import Memory
from openmemory.memories.repository import ALL_STATES
from openmemory.memories.schemas import Event
from openmemory.memories.state import State

log = logging.getLogger(__name__)

MAX_PAGE_SIZE = 100


class Captures:
    """Accepts texts and conversations from which the language model extracts facts."""

    def __init__(
        self,
        database: Database,
        worker: Worker,
        delivery: OutboxDelivery,
        *,
        intake: Intake,
        rates: RateLimiter,
        settings: Settings,
    ) -> None:
        self._database = database
        self._worker = worker
        self._delivery = delivery
        self._intake = intake
        self._rates = rates
        self._settings = settings
        # Many concurrent requests wait here, where they hold no connection, and not in the pool, where a wait ends
        # after 5 s.
        self._room = asyncio.Semaphore(max(2, settings.database.pool_size // 2))

    async def possible(self) -> bool:
        """Returns True if a language model is configured, so that `add` is useful.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        return await self._worker.extractor.configured()

    async def add(self, caller: Caller, new: CaptureCreate, moved: Moved = nobody) -> Outcome:
        """Accepts a capture and waits for the result if the request asks for it. The capture is stored in any case.

        `moved` is called for every step while the request waits. The same input from the same app, sent within
        `capture.repeat` seconds or with the same key, is the same capture.

        Raises:
            Invalid: a field cannot be used, the text holds a secret, or the key was given to another request.
            Forbidden: the app is paused, or the credential may not write there.
            TooMany: an assistant's app saves too often.
        """
        caller.may_write(new.like.namespace)
        new = checked(new, self._intake, self._settings.limits)
        await self._rates.save(caller, 1)
        async with self._room:
            id_, over = await self._store(caller, new)
        waits = not new.messages if new.wait is None else new.wait
        self._worker.wake()
        if waits and not over and (seconds := min(self._settings.capture.wait, new.longest_wait)):
            await wait_for_attempt(self._database, self._worker, self._room, id_, seconds=seconds, moved=moved)
        async with self._room:
            outcome = await self.outcome(caller, id_)
        if outcome.status is not Status.WORKING:
            await moved(outcome.status, 0)
        return outcome

    async def outcome(self, caller: Caller, id_: UUID) -> Outcome:
        """The current result of one of the caller's own captures.

        Raises:
            Forbidden: the app is paused.
            NotFound: there is none.
        """
        async with self._database.statement() as tx:
            await refuse_if_paused(tx, caller, "see captures")
            row = await _one(tx, caller, id_)
            # The caller may see memories that its capture has just archived.
            [view] = await _views(tx, caller, [row], states=ALL_STATES)
        return Outcome(**{name: getattr(view, name) for name in Outcome.model_fields})

    @retry_on_conflict
    async def get(self, caller: Caller, id_: UUID) -> CaptureView:
        """One capture. Users may read any of theirs; an app that is not paused may read its own.

        Raises:
            NotFound: there is none.
        """
        caller.may_read()
        async with self._database.transaction() as tx:
            row = await _one(tx, caller, id_)
            [view] = await _views(tx, caller, [row])
            await audit_log.record(tx, caller, AuditAction.CAPTURE_GET, [id_])
        return view

    @retry_on_conflict
    async def list(
        self,
        caller: Caller,
        *,
        statuses: Sequence[Status] = (),
        memory_id: UUID | None = None,
        page: int = 1,
        size: int = 20,
    ) -> CapturePage:
        """A page of captures, newest first. `memory_id`: only those that made or changed this memory.

        Raises:
            Invalid: the page or its size cannot be used.
        """
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        which = and_(
            own(caller, Capture),
            Capture.status == func.any([str(one) for one in statuses]) if statuses else true(),
            Capture.memory_ids.bool_op("@>")([memory_id]) if memory_id is not None else true(),
        )
        newest = _whole().where(which).order_by(Capture.created_at.desc(), Capture.id.desc())
        async with self._database.transaction() as tx:
            counted = select(func.count()).select_from(Capture).where(which)
            total = await tx.scalar(counted, caller.parameters) or 0
            rows = (await tx.execute(newest.offset((page - 1) * size).limit(size), caller.parameters)).all()
            items = await _views(tx, caller, rows)
            await audit_log.record(tx, caller, AuditAction.CAPTURE_LIST, [row.id for row in rows])
        return CapturePage(items=items, total=total, page=page, size=size)

    @retry_on_conflict
    async def usage(self, caller: Caller, *, first: date | None = None, last: date | None = None) -> Usage:
        """Usage from the first day to the last, by app and day: all of the user's captures, or an app's own.

        Raises:
            Invalid: the days are in the wrong order, or there are too many.
        """
        caller.may_read()
        first, last = usage.days(first, last)
        async with self._database.transaction() as tx:
            report = await usage.between(tx, caller, first, last)
            await audit_log.record(tx, caller, AuditAction.STATS_READ)
        return report

    async def undo(self, caller: Caller, id_: UUID) -> CaptureView:
        """Undoes every change of a capture in one step, or cancels a waiting capture. A repeated call does nothing.

        Raises:
            NotFound: there is no such capture, or the caller may not change one of its memories.
            ConflictError: the capture is being processed, or one of its memories was changed since.
        """
        caller.may_write()
        caller.may_read()  # the answer shows the memories
        await self._undo(caller, id_)
        self._delivery.wake()
        return await self.get(caller, id_)

    @retry_on_conflict
    async def _undo(self, caller: Caller, id_: UUID) -> None:
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "change memories")
            columns = (Capture.status, Capture.operations, Capture.app_id, Capture.namespace)
            query = select(Capture).with_only_columns(*columns).where(own(caller, Capture), Capture.id == id_)
            row = (await tx.execute(query.with_for_update(), caller.parameters)).one_or_none()
            if row is None:
                raise _no_capture()
            if row.status == Status.UNDONE:
                return
            if row.status == Status.WORKING:
                raise ConflictError(
                    "The capture is being worked on.", code="capture_working", hint="Try again in a moment."
                )
            if row.operations:
                await undoing.undo(tx, caller, row.operations, self._intake)
            values = {"status": Status.UNDONE, "finished_at": func.now(), "updated_at": func.now()}
            await tx.execute(update(Capture).where(Capture.id == id_).values(values))
            await audit_log.record(tx, caller, AuditAction.CAPTURE_UNDO, [id_], detail={"was": row.status})
            await usage.record(tx, row.app_id, row.namespace, became=Status.UNDONE)

    @retry_on_conflict
    async def _store(self, caller: Caller, new: CaptureCreate) -> tuple[UUID, bool]:
        """Stores a capture, or finds the same one if it was sent recently or with the same key.

        Returns its id and True if it has ended.
        """
        columns = columns_of(new)
        fingerprint = columns["hash"]
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller)
            if new.once is not None:
                before = await idempotency.claim(tx, caller, new.once, "capture")
                row = None if before is None else await _find(tx, caller, Capture.id == before.capture_id)
            else:
                await lock(tx, f"capture {caller.app_id} {fingerprint}")
                recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, self._settings.capture.repeat)
                same = and_(Capture.hash == fingerprint, Capture.created_at > recent, Capture.status != Status.UNDONE)
                row = await _find(tx, caller, same)
            if row is not None:
                if row.status == Status.FAILED:  # sending it again requests a retry
                    again_ = {"status": Status.PENDING, "due_at": func.now(), "bad_answers": 0, "finished_at": None}
                    await tx.execute(update(Capture).where(Capture.id == row.id).values(again_))
                await audit_log.record(tx, caller, AuditAction.CAPTURE_ADD, [row.id], detail={"again": True})
                return row.id, row.status in (Status.DONE, Status.UNDONE)
            values = columns | {
                "user_id": caller.user_id, "app_id": caller.app_id, "namespace": new.like.namespace,
                "principal": principal_of(caller.principal),
            }  # fmt: skip
            await queue.hurry(tx, caller.user_id, new.like.namespace)
            id_ = (await tx.execute(insert(Capture).values(values).returning(Capture.id))).scalar_one()
            if new.once is not None:
                await idempotency.store(tx, caller, new.once, capture_id=id_)
            await audit_log.record(tx, caller, AuditAction.CAPTURE_ADD, [id_])
        return id_, False


async def _one(tx: Tx, caller: Caller, id_: UUID) -> Any:
    """A complete capture that the caller may see.

    Raises:
        NotFound: there is none.
    """
    row = (await tx.execute(_whole().where(own(caller, Capture), Capture.id == id_), caller.parameters)).one_or_none()
    if row is None:
        raise _no_capture()
    return row


async def _find(tx: Tx, caller: Caller, which: ColumnElement[bool]) -> Any:
    query = (
        select(Capture.id, Capture.status)
        .where(Capture.app_id == caller.app_id, which)
        .order_by(Capture.created_at.desc())
        .limit(1)
    )
    return (await tx.execute(query)).one_or_none()


def _whole() -> Any:
    return select(Capture.__table__, App.name.label("app_name")).join(App, App.id == Capture.app_id)


async def _views(
    tx: Tx, caller: Caller, rows: Sequence[Any], *, states: Sequence[State] = (State.ACTIVE,)
) -> list[CaptureView]:
    """Captures as response models. Memories that the caller's app may no longer read are left out."""
    ids = list({id_ for row in rows for id_ in row.memory_ids})
    readable = set(ids)
    if ids and not (caller.owner and caller.everywhere):
        states = ALL_STATES if caller.owner else states
        query = select(Memory.id).where(Memory.id == func.any(ids), readable_by(caller, Memory, states=states))
        readable = set((await tx.scalars(query, caller.parameters)).all())
    readable_ids = {str(id_) for id_ in readable}
    return [_view(row, readable_ids) for row in rows]


def _view(row: Any, readable: set[str]) -> CaptureView:
    return CaptureView(
        results=[_result(each, readable) for each in row.operations if each["id"] in readable],
        refused=[_readable_refusal(Refusal.model_validate(each), readable) for each in row.refused],
        capture_id=row.id, status=Status(row.status), error=row.error if row.status != Status.DONE else None,
        app_id=row.app_id, app_name=row.app_name, namespace=row.namespace, input=row.input, attempts=row.attempts,
        next_attempt_at=row.due_at.astimezone(UTC) if row.status in UNREAD else None, model=row.model,
        calls=row.calls, prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens,
        seconds=row.seconds, created_at=row.created_at, finished_at=row.finished_at,
    )  # fmt: skip


def _result(each: dict[str, Any], readable: set[str]) -> CaptureResult:
    followed = each.get("superseded_id")
    is_readable = followed is None or followed in readable
    return CaptureResult(
        id=each["id"], memory=each["memory"], event=Event(each["event"]),
        previous_memory=each.get("previous_memory") if is_readable else None,
        superseded_id=followed if is_readable else None,
        message=each.get("message"),
    )  # fmt: skip


def _readable_refusal(refusal: Refusal, readable: set[str]) -> Refusal:
    """The refusal, without the id and the text if the caller may not read the memory."""
    if refusal.id is None or str(refusal.id) in readable:
        return refusal
    return refusal.model_copy(update={"id": None, "memory": None})


def _no_capture() -> NotFound:
    return NotFound("Capture not found", code="capture_not_found")
