"""The use cases of captures: taking in what is said, telling what became of it, and taking that back."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, func, insert, select, text, true, update

from app.access import journal
from app.access.caller import Caller
from app.access.journal import Event as AuditEvent
from app.access.models import App
from app.access.rates import Rates
from app.access.readable import readable_by, within_reach
from app.again import again
from app.capture import applying, extraction, stored, undoing
from app.capture.models import Capture, Status
from app.capture.schemas import (
    CaptureCreate,
    CapturePage,
    CaptureResult,
    CaptureView,
    Outcome,
    Refusal,
)
from app.capture.worker import Worker
from app.config import Settings
from app.database import Database, Tx
from app.errors import Conflict, Invalid, NotFound
from app.index.deliver import Deliverer
from app.memories import checks
from app.memories.intake import Intake
from app.memories.models import Memory, State
from app.memories.repository import ALL_STATES
from app.memories.schemas import Event, MemoryCreate

log = logging.getLogger(__name__)

FIRST_LOOK, LAST_LOOK = 0.5, 4.0
"""Seconds between two looks at a capture that another process may have taken: doubled from the first to the last."""

MAX_PAGE_SIZE = 100
MAX_TURNS = 200
"""Messages of one capture."""

_LOCK = text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))")


class Captures:
    """Takes in texts and conversations for the language model to extract facts from."""

    def __init__(
        self,
        database: Database,
        worker: Worker,
        delivery: Deliverer,
        *,
        intake: Intake,
        rates: Rates,
        settings: Settings,
    ) -> None:
        self._database = database
        self._worker = worker
        self._delivery = delivery
        self._intake = intake
        self._rates = rates
        self._settings = settings
        # Many at once wait here, where they take no connection, rather than in the pool, which lets them wait 5 s.
        self._room = asyncio.Semaphore(max(2, settings.database.pool_size // 2))

    async def possible(self) -> bool:
        """Whether a language model is chosen, so that `add` is of use.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        return await self._worker.extractor.configured()

    async def add(self, caller: Caller, new: CaptureCreate) -> Outcome:
        """Take in what was said, and wait for what becomes of it if that is wanted; it is kept in any case.

        The same again from the same app, within `capture.repeat` seconds or with the same key, is the same capture.

        Raises:
            Invalid: a field cannot be used, or the text holds a secret.
            Conflict: the key was given to something else.
            Forbidden: the app is paused, or the credential may not write there.
            TooMany: an assistant's app saves too often.
        """
        caller.may_write(new.like.namespace)
        new = self._checked(new)
        await self._rates.save(caller, 1)
        async with self._room:
            id_, over = await self._take(caller, new)
        waits = not new.messages if new.wait is None else new.wait
        self._worker.wake()
        if waits and not over and self._settings.capture.wait:
            await self._finished(id_, self._settings.capture.wait)
        async with self._room:
            return await self.outcome(caller, id_)

    async def outcome(self, caller: Caller, id_: UUID) -> Outcome:
        """What has become of a capture of the caller's own by now."""
        async with self._database.statement() as tx:
            row = (await tx.execute(_whole().where(_own(caller), Capture.id == id_), caller.parameters)).one_or_none()
            if row is None:
                raise _no_capture()
            # Whatever it has just put aside it knows.
            [view] = await _views(tx, caller, [row], states=ALL_STATES)
        return Outcome(**{name: getattr(view, name) for name in Outcome.model_fields})

    @again
    async def get(self, caller: Caller, id_: UUID) -> CaptureView:
        """One capture: of the user themself any of theirs, of an app its own.

        Raises:
            NotFound: there is none.
        """
        caller.may_read()
        async with self._database.transaction() as tx:
            row = (await tx.execute(_whole().where(_own(caller), Capture.id == id_), caller.parameters)).one_or_none()
            if row is None:
                raise _no_capture()
            [view] = await _views(tx, caller, [row])
            await journal.record(tx, caller, AuditEvent.CAPTURE_GET, [id_])
        return view

    @again
    async def list(
        self, caller: Caller, *, statuses: Sequence[Status] = (), page: int = 1, size: int = 20
    ) -> CapturePage:
        """A page of captures, newest first.

        Raises:
            Invalid: the page or its size cannot be used.
        """
        caller.may_read()
        checks.between(page, "page", 1, 1_000_000)
        checks.between(size, "size", 1, MAX_PAGE_SIZE)
        which = and_(_own(caller), Capture.status == func.any([str(one) for one in statuses]) if statuses else true())
        newest = _whole().where(which).order_by(Capture.created_at.desc(), Capture.id.desc())
        async with self._database.transaction() as tx:
            counted = select(func.count()).select_from(Capture).where(which)
            total = await tx.scalar(counted, caller.parameters) or 0
            rows = (await tx.execute(newest.offset((page - 1) * size).limit(size), caller.parameters)).all()
            items = await _views(tx, caller, rows)
            await journal.record(tx, caller, AuditEvent.CAPTURE_LIST, [row.id for row in rows])
        return CapturePage(items=items, total=total, page=page, size=size)

    async def undo(self, caller: Caller, id_: UUID) -> CaptureView:
        """Take back all that was made of a capture, as one step; one that still waits is given up. Again: nothing.

        Raises:
            NotFound: there is none, or a memory of it is not the caller's to change.
            Conflict: it is being worked on, or a memory of it was changed since.
        """
        caller.may_write()
        caller.may_read()  # the answer shows the memories
        await self._undo(caller, id_)
        self._delivery.wake()
        return await self.get(caller, id_)

    @again
    async def _undo(self, caller: Caller, id_: UUID) -> None:
        async with self._database.transaction() as tx:
            await applying.refuse_paused(tx, caller, "change memories")
            query = select(Capture).with_only_columns(Capture.status, Capture.operations).where(
                _own(caller), Capture.id == id_
            )  # fmt: skip
            row = (await tx.execute(query.with_for_update(), caller.parameters)).one_or_none()
            if row is None:
                raise _no_capture()
            if row.status == Status.UNDONE:
                return
            if row.status == Status.WORKING:
                raise Conflict("The capture is being worked on.", code="capture_working", hint="Try again in a moment.")
            if row.status == Status.DONE:
                await undoing.take_back(tx, caller, row.operations, self._intake)
            values = {"status": Status.UNDONE, "finished_at": func.now(), "updated_at": func.now()}
            await tx.execute(update(Capture).where(Capture.id == id_).values(values))
            await journal.record(tx, caller, AuditEvent.CAPTURE_UNDO, [id_], detail={"was": row.status})

    def _checked(self, new: CaptureCreate) -> CaptureCreate:
        """What is taken, as every memory's; a conversation without its secrets."""
        limits = self._settings.limits
        if new.key is not None:
            checks.name(new.key, "Idempotency-Key", limits)
        if not new.messages:
            return replace(new, like=_plain(self._intake.created(new.like)))
        if len(new.messages) > MAX_TURNS:
            raise Invalid("messages", f"has {len(new.messages):,} entries; the limit is {MAX_TURNS}")
        for number, turn in enumerate(new.messages):
            checks.text(turn.content, f"messages[{number}].content", limits.text, "limits.text")
        checks.part("".join(turn.content for turn in new.messages), "messages", 4 * limits.text, "4 x limits.text")
        like = replace(_plain(self._intake.created(replace(new.like, text="conversation"))), text="")
        turns = new.messages if self._settings.capture.secrets == "store" else extraction.redacted(new.messages)
        return replace(new, like=like, messages=turns)

    @again
    async def _take(self, caller: Caller, new: CaptureCreate) -> tuple[UUID, bool]:
        """Store it, or find it: the same if it was sent a moment ago, or with this key. Tells whether it is over."""
        columns = stored.columns(new)
        fingerprint = columns["hash"]
        async with self._database.transaction() as tx:
            await applying.refuse_paused(tx, caller)
            await tx.execute(_LOCK, {"name": f"capture {caller.app_id} {new.key or fingerprint}"})
            if new.key is not None:
                found = await _found(tx, caller, Capture.idempotency_key == new.key)
                if found is not None and found.hash != fingerprint:
                    raise Conflict(
                        "The Idempotency-Key was given to something else before.",
                        code="idempotency_key_reused",
                        hint="Take a new one for every text.",
                    )
            else:
                recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, self._settings.capture.repeat)
                same = and_(Capture.hash == fingerprint, Capture.created_at > recent, Capture.status != Status.UNDONE)
                found = await _found(tx, caller, same)
            if found is not None:
                if found.status == Status.FAILED:  # whoever sends it again means it
                    again_ = {"status": Status.PENDING, "due_at": func.now(), "bad_answers": 0, "finished_at": None}
                    await tx.execute(update(Capture).where(Capture.id == found.id).values(again_))
                await journal.record(tx, caller, AuditEvent.CAPTURE_ADD, [found.id], detail={"again": True})
                return found.id, found.status in (Status.DONE, Status.UNDONE)
            values = columns | {
                "user_id": caller.user_id, "app_id": caller.app_id, "namespace": new.like.namespace,
                "principal": stored.principal(caller.principal), "idempotency_key": new.key,
            }  # fmt: skip
            id_ = (await tx.execute(insert(Capture).values(values).returning(Capture.id))).scalar_one()
            await journal.record(tx, caller, AuditEvent.CAPTURE_ADD, [id_])
        return id_, False

    async def _finished(self, id_: UUID, seconds: float) -> None:
        """Wait until an attempt is over: this process tells at once, what another one did is looked for."""
        until, pause = time.monotonic() + seconds, FIRST_LOOK
        with self._worker.watching(id_) as tried:
            while (left := until - time.monotonic()) > 0:
                done, _ = await asyncio.wait([tried], timeout=min(left, pause))
                if done:
                    return
                async with self._room:
                    if await self._tried(id_):
                        return
                pause = min(LAST_LOOK, 2 * pause)

    async def _tried(self, id_: UUID) -> bool:
        async with self._database.statement() as tx:
            query = select(Capture.status, Capture.error).where(Capture.id == id_)
            row = (await tx.execute(query)).one_or_none()
        return row is None or row.status not in _WAITS or (row.status == Status.PENDING and row.error is not None)


_WAITS = (Status.PENDING, Status.WORKING)


def _plain(like: MemoryCreate) -> MemoryCreate:
    """Without what intake found out, which it finds out again for each memory."""
    return MemoryCreate(**{name: getattr(like, name) for name in MemoryCreate.__dataclass_fields__})


async def _found(tx: Tx, caller: Caller, which: ColumnElement[bool]) -> Any:
    query = (
        select(Capture.id, Capture.status, Capture.hash)
        .where(Capture.app_id == caller.app_id, which)
        .order_by(Capture.created_at.desc())
        .limit(1)
    )
    return (await tx.execute(query)).one_or_none()


def _own(caller: Caller) -> ColumnElement[bool]:
    """The captures that a caller may see: an app its own. Execute with `caller.parameters`."""
    mine = and_(Capture.user_id == caller.user_id, within_reach(Capture))
    return mine if caller.owner else and_(mine, Capture.app_id == caller.app_id)


def _whole() -> Any:
    return select(Capture.__table__, App.name.label("app_name")).join(App, App.id == Capture.app_id)


async def _views(
    tx: Tx, caller: Caller, rows: Sequence[Any], *, states: Sequence[State] = (State.ACTIVE,)
) -> list[CaptureView]:
    """Captures as they are shown. Of a memory that the caller's app may not read any more nothing is told."""
    ids = list({id_ for row in rows for id_ in row.memory_ids})
    readable = set(ids)
    if ids and not (caller.owner and caller.principal.namespaces is None):
        states = ALL_STATES if caller.owner else states
        query = select(Memory.id).where(Memory.id == func.any(ids), readable_by(caller, Memory, states=states))
        readable = set((await tx.scalars(query, caller.parameters)).all())
    known = {str(id_) for id_ in readable}
    return [_view(row, known) for row in rows]


def _view(row: Any, readable: set[str]) -> CaptureView:
    return CaptureView(
        results=[_result(each, readable) for each in row.operations if each["id"] in readable],
        refused=[_refused(Refusal.model_validate(each), readable) for each in row.refused],
        capture_id=row.id, status=Status(row.status), error=row.error if row.status != Status.DONE else None,
        app_id=row.app_id, app_name=row.app_name, namespace=row.namespace, input=row.input, attempts=row.attempts,
        next_attempt_at=row.due_at.astimezone(UTC) if row.status in _WAITS else None, model=row.model,
        calls=row.calls, prompt_tokens=row.prompt_tokens, completion_tokens=row.completion_tokens,
        seconds=row.seconds, created_at=row.created_at, finished_at=row.finished_at,
    )  # fmt: skip


def _result(each: dict[str, Any], readable: set[str]) -> CaptureResult:
    followed = each.get("superseded_id")
    told = followed is None or followed in readable
    return CaptureResult(
        id=each["id"], memory=each["memory"], event=Event(each["event"]),
        previous_memory=each.get("previous_memory") if told else None, superseded_id=followed if told else None,
    )  # fmt: skip


def _refused(refusal: Refusal, readable: set[str]) -> Refusal:
    """A refusal; the id of a memory only where that may be read. Its text is what the model wrote, of what was said."""
    if refusal.id is None or str(refusal.id) in readable:
        return refusal
    return refusal.model_copy(update={"id": None, "memory": None})


def _no_capture() -> NotFound:
    return NotFound("Capture not found", code="capture_not_found")
