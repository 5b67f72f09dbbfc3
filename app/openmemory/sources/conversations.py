"""The use cases of conversations. Each public method is one use case and runs in one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import ColumnElement, and_, func, literal_column, select, update

from openmemory.access.apps import refuse_if_paused, refuse_paused
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import BatchRefused, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door, Principal
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.models import ACTIVE
from openmemory.memories.state import State
from openmemory.sources import lifecycle, listing, messages, writing
from openmemory.sources.messages import CheckedMessage, MessageChecks
from openmemory.sources.models import Passage, Source, SourceKind
from openmemory.sources.schemas import (
    MessageAdded,
    MessageEvent,
    MessagePage,
    NewMessages,
    Thread,
    ThreadMessage,
    ThreadPage,
    ThreadsChanged,
)

_EXPIRED_TOGETHER = 500
_MESSAGES_OF_A_SAVE = 10
"""The number of messages that count as one save of `rates.saves`."""


class MessageSlice(NamedTuple):
    """Some messages of a thread, and the number of all."""

    items: list[ThreadMessage]
    total: int


class Conversations:
    """Stores conversations verbatim, lists, reads and deletes them."""

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        *,
        limits: LimitSettings,
        capture: CaptureSettings,
        rates: RateLimiter,
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._limits = limits
        self._checks = MessageChecks(limits, capture)
        self._rates = rates
        self.written: Counter[str] = Counter()
        """Messages written since the start, by operation: add, delete, restore or erase."""

    async def add(self, caller: Caller, new: NewMessages) -> list[MessageAdded | Invalid]:
        """Append messages to the app's conversation of this thread id, which begins with its first message.

        Returns the result of every message, in order, or the error that rejected it. A message whose id the
        conversation has already is not stored again. Secrets are redacted unless `capture.secrets` is `store`.

        Raises:
            BatchRefused: no message can be stored, or with `on_error="fail"` one of them cannot.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
            Invalid: the thread id, the namespace or the title is invalid.
        """
        limits = self._limits
        validation.count(new.messages, "messages", limits.batch, "limits.batch")
        new = replace(new, **validation.names(new, ("thread_id", "namespace"), limits))
        title = None if new.title is None else self._line(new.title, "title")
        validation.ttl(new.ttl_days, None)
        caller.may_write(new.namespace)
        # In a thread, because there may be many.
        checked = await asyncio.to_thread(lambda: [self._checks.checked(message) for message in new.messages])
        _refuse_if_needed(checked, new)
        await self._rates.save(caller, -(-len(checked) // _MESSAGES_OF_A_SAVE))
        results = await self._add(caller, replace(new, title=title), checked)
        self.written["add"] += sum(
            isinstance(each, MessageAdded) and each.event is MessageEvent.ADD for each in results
        )
        self._delivery.wake()
        return results

    def _line(self, value: str, field: str) -> str:
        value = validation.line(value, field, self._limits.name, "limits.name")
        return self._checks.spoken(value, field, self._limits.name, "limits.name")

    @retry_on_conflict
    async def _add(
        self, caller: Caller, new: NewMessages, checked: Sequence[CheckedMessage | Invalid]
    ) -> list[MessageAdded | Invalid]:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store messages")
            opened = await writing.opened(tx, caller, new.namespace, SourceKind.CONVERSATION, new.thread_id)
            source, length = opened.id, opened.length
            external_ids = [
                each.message.id for each in checked if isinstance(each, CheckedMessage) and each.message.id is not None
            ]
            messages_by_id = await messages.read_by_external_ids(tx, source, external_ids)
            results, rows = list[MessageAdded | Invalid](), list[dict[str, Any]]()
            now = datetime.now(UTC)
            for place, each in enumerate(checked):
                if isinstance(each, Invalid):
                    results.append(each)
                    continue
                message = each.message
                if message.id is not None and message.id in messages_by_id:
                    results.append(messages.repeated(message, messages_by_id[message.id]))
                    continue
                length += 1
                added = MessageAdded(uuid4(), MessageEvent.ADD, length, each.redacted)
                results.append(added)
                rows.append(
                    {
                        "id": added.id,
                        "position": length,
                        "external_id": message.id,
                        "speaker": message.role,
                        "content": message.content,
                        "metadata": message.metadata,
                        "created_at": _in_order(message.created_at or now, place),
                        "labels": each.labels,
                    }
                )
                if message.id is not None:
                    messages_by_id[message.id] = messages.StoredMessage(added.id, length, message.content)
            _refuse_if_needed(results, new)
            if rows:
                await messages.store(tx, caller, new, source, rows)
        return results

    async def threads(
        self, caller: Caller, *, namespaces: tuple[str, ...] = (), page: int = 1, size: int = 50
    ) -> ThreadPage:
        """A page of the conversations that the caller may read, the last used first.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        which = [self._which(caller, namespaces=namespaces)]
        await self._rates.search(caller)
        count = (
            select(func.count())
            .where(Passage.source_id == Source.id, Passage.state == ACTIVE)
            .correlate(Source)
            .scalar_subquery()
        )
        columns = (
            Source.locator, Source.namespace, App.name, Source.title, listing.summary(caller), count,
            Source.created_at, Source.updated_at, Source.closed_at,
        )  # fmt: skip
        order = Source.updated_at.desc(), Source.id.desc()
        async with self._database.transaction() as tx:
            rows, total = await listing.page_of(tx, caller, columns, which, order, page=page, size=size)
            await audit_log.record(tx, caller, AuditAction.THREAD_LIST, detail={"threads": len(rows)})
        return ThreadPage([Thread(*row) for row in rows], total, page, size)

    async def messages(
        self,
        caller: Caller,
        thread_id: str,
        *,
        namespaces: tuple[str, ...] = (),
        around: int | None = None,
        page: int = 1,
        size: int = 50,
    ) -> MessagePage:
        """A page of the messages of a thread, of all apps whose conversations the caller may read, oldest first.

        `around`: as in `slice`, in place of the page.

        Raises:
            NotFound: there is no such thread, or the caller may not read it.
            Invalid: the thread id, a namespace, the page or its size is invalid.
        """
        listing.check_page(page, size)
        part = await self.slice(
            caller, thread_id, namespaces=namespaces, around=around, offset=(page - 1) * size, limit=size
        )
        return MessagePage(part.items, part.total, page, size)

    async def slice(
        self,
        caller: Caller,
        thread_id: str,
        *,
        namespaces: tuple[str, ...] = (),
        around: int | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> MessageSlice:
        """Any range of the messages that `messages` pages through, and their total number.

        `around`: the position of a message; the range is those nearest to it, of every app that has one there.

        Raises:
            NotFound, Invalid: as `messages` does.
        """
        caller.may_read()
        validation.between(offset, "offset", 0, 100_000_000)
        validation.between(limit, "limit", 1, listing.MAX_PAGE_SIZE)
        if around is not None:
            validation.between(around, "around", 1, 2**31 - 1)
        thread_id = validation.name(thread_id, "thread_id", self._limits)
        which = [Passage.thread_id == thread_id, readable_by(caller, Passage)]
        which += listing.within(namespaces, self._limits, Passage)
        await self._rates.search(caller)
        columns = (
            Passage.id, Passage.thread_id, Passage.namespace, App.name, Passage.position,
            func.coalesce(Passage.speaker, Passage.kind), Passage.content, Passage.created_at, Passage.metadata_,
            Passage.labels, Passage.external_id,
        )  # fmt: skip
        rows = select(*columns).join(App, App.id == Passage.app_id).where(*which)
        some = rows.order_by(Passage.created_at, Passage.id).offset(offset).limit(limit)
        if around is not None:
            near = Passage.position.between(around - (limit - 1) // 2, around + limit // 2)
            some = rows.where(near).order_by(Passage.created_at, Passage.id).limit(limit)
        async with self._database.transaction() as tx:
            total = await tx.scalar(select(func.count()).select_from(Passage).where(*which), caller.parameters) or 0
            if not total:
                raise no_thread()
            items = [ThreadMessage(*row) for row in await tx.execute(some, caller.parameters)]
            await audit_log.record(tx, caller, AuditAction.THREAD_READ, [message.id for message in items])
        return MessageSlice(items, total)

    @retry_on_conflict
    async def close(
        self,
        caller: Caller,
        thread_id: str,
        *,
        namespaces: tuple[str, ...] = (),
        title: str | None = None,
        summary: str | None = None,
    ) -> ThreadsChanged:
        """Mark the conversations of a thread as closed. The next message opens its conversation again.

        `title`, `summary`: what they are about; None leaves them as they are.

        Raises:
            NotFound: there is no such thread, or the caller may not read it.
            Invalid: the thread id, a namespace, the title or the summary is invalid.
        """
        caller.may_write()
        values: dict[str, Any] = {"closed_at": func.now(), "updated_at": func.now()}
        if title is not None:
            values["title"] = self._line(title, "title")
        if summary is not None:
            values["summary"] = self._checks.spoken(summary, "summary", self._limits.text, "limits.text")
        which = self._which(caller, thread_id, namespaces)
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "close conversations")
            changed = await tx.scalars(
                update(Source).where(which).values(values).returning(Source.id), caller.parameters
            )
            ids = changed.all()
            if not ids:
                raise no_thread()
            await audit_log.record(tx, caller, AuditAction.THREAD_CLOSE, ids)
        return ThreadsChanged(len(ids), 0)

    @retry_on_conflict
    async def delete(self, caller: Caller, thread_id: str, *, namespaces: tuple[str, ...] = ()) -> ThreadsChanged:
        """Soft-delete the conversations of a thread. They are no longer found; `restore` brings them back.

        Raises:
            NotFound: there is no such thread, or the caller may not read it.
        """
        return await self._move(caller, thread_id, namespaces, State.DELETED)

    @retry_on_conflict
    async def restore(self, caller: Caller, thread_id: str, *, namespaces: tuple[str, ...] = ()) -> ThreadsChanged:
        """Make the deleted conversations of a thread active again. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: no conversation of this thread is deleted.
        """
        caller.must_be_owner("restore conversations", everywhere=False)
        return await self._move(caller, thread_id, namespaces, State.ACTIVE)

    async def _move(self, caller: Caller, thread_id: str, namespaces: tuple[str, ...], target: State) -> ThreadsChanged:
        caller.may_write()
        deletes = target is State.DELETED
        before = State.ACTIVE if deletes else State.DELETED
        # A conversation that goes on after it was deleted is active, and its earlier messages are not.
        which = self._which(caller, thread_id, namespaces, *{before, State.ACTIVE})
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, f"{'delete' if deletes else 'restore'} conversations")
            sources, changed = await lifecycle.move(tx, caller, which, target)
            if not changed:
                raise no_thread()
            action = AuditAction.THREAD_DELETE if deletes else AuditAction.THREAD_RESTORE
            await audit_log.record(tx, caller, action, changed)
        self.written["delete" if deletes else "restore"] += len(changed)
        self._delivery.wake()
        return ThreadsChanged(len(sources), len(changed))

    @retry_on_conflict
    async def erase(self, caller: Caller, thread_id: str, *, namespaces: tuple[str, ...] = ()) -> ThreadsChanged:
        """Permanently remove the conversations of a thread with their messages and vectors. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: there is no such thread, or it is not the caller's.
        """
        caller.must_be_owner("erase conversations for good", everywhere=False)
        caller.may_write()
        which = self._which(caller, thread_id, namespaces, State.ACTIVE, State.DELETED)
        async with self._database.transaction() as tx:
            sources, erased = await lifecycle.erase(tx, caller, which)
            if not sources:
                raise no_thread()
            await audit_log.record(tx, caller, AuditAction.THREAD_ERASE, erased)
        self.written["erase"] += len(erased)
        self._delivery.wake()
        return ThreadsChanged(len(sources), len(erased))

    async def expire(self) -> int:
        """Delete the messages and documents that have expired, as `delete` does. Returns the number of passages."""
        count = 0
        while some := await self._expire_some():
            count += some
            self._delivery.wake()
        self.written["delete"] += count
        return count

    @retry_on_conflict
    async def _expire_some(self) -> int:
        over = Passage.state == ACTIVE, Passage.expires_at <= func.now()
        due = select(Passage.id).where(*over).order_by(Passage.expires_at).limit(_EXPIRED_TOGETHER)
        async with self._database.transaction() as tx:
            # A delivery that writes the vector of a message has its key locked, which does not matter here.
            ids = (await tx.scalars(due.with_for_update(skip_locked=True, key_share=True))).all()
            gone = update(Passage).where(Passage.id.in_(ids))
            gone = gone.values(state=State.DELETED, revision=Passage.revision + 1)
            by_user, sources = defaultdict[UUID, list[UUID]](list), set[UUID]()
            for id_, user, source in await tx.execute(gone.returning(Passage.id, Passage.user_id, Passage.source_id)):
                by_user[user].append(id_)
                sources.add(source)
            await lifecycle.end_expired(tx, sources)
            await outbox.add_entries(tx, ItemKind.PASSAGE, ids)
            principal = Principal("expiry", "expiry", door=Door.JOB)
            for user, theirs in by_user.items():
                await audit_log.record(tx, principal, AuditAction.THREAD_EXPIRE, theirs, user_id=user)
        return len(ids)

    def _which(
        self,
        caller: Caller,
        thread_id: str | None = None,
        namespaces: tuple[str, ...] = (),
        *states: State,
    ) -> ColumnElement[bool]:
        """The conversations that the caller may read, in these states or active."""
        parts = [
            Source.kind == literal_column(f"'{SourceKind.CONVERSATION.value}'"),
            readable_by(caller, Source, states=states or (State.ACTIVE,)),
        ]
        if thread_id is not None:
            parts.append(Source.locator == validation.name(thread_id, "thread_id", self._limits))
        return and_(*parts, *listing.within(namespaces, self._limits))


def _in_order(moment: datetime, place: int) -> datetime:
    """The time of a message. Those of one request have an order, even if all have the same time."""
    try:
        return moment + timedelta(microseconds=place)
    except OverflowError:  # the end of all times
        return moment


def no_thread() -> NotFound:
    """The error for a thread that is unknown or not the caller's."""
    return NotFound("Thread not found", code="thread_not_found")


def _errors(results: Sequence[object]) -> dict[int, Invalid]:
    return {place: each for place, each in enumerate(results) if isinstance(each, Invalid)}


def _refuse_if_needed(results: Sequence[object], new: NewMessages) -> None:
    """Refuse the whole request if none of its messages can be stored, or one cannot and that is not allowed.

    Raises:
        BatchRefused: so it is.
    """
    refused = _errors(results)
    if refused and (len(refused) == len(results) or new.on_error == "fail"):
        problem = f"holds {len(refused)} that cannot be stored; nothing was stored"
        raise BatchRefused("messages", problem, refused=refused)
