"""The use cases of sessions: numbered, titled and summarised conversations that are saved as a whole.

A session is a conversation whose passages are its summary and its text, so that everything that lists, closes, deletes
or erases conversations works for it too. Its thread id is `session-` and its number.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, and_, cast, func, literal_column, select, text, update

from openmemory.access.apps import refuse_paused, refuse_unreadable
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.content_policy import secrets
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, NotFound, TooLarge
from openmemory.identity.caller import Caller
from openmemory.identity.names import storable
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.state import State
from openmemory.sources import listing, passages, writing
from openmemory.sources.models import Passage, PassageKind, Source, SourceKind
from openmemory.sources.reading import TextReader
from openmemory.sources.schemas import (
    MAX_NUMBER,
    FileEvent,
    NewSession,
    SavedSession,
    SessionPage,
    SessionSaved,
    SessionText,
)
from openmemory.sources.writing import NewPassage

MAX_CONTENT = 8_388_608
"""The number of characters that the text of a session may have."""

_PREFIX = "session-"
_NUMBERED = re.compile(r"session-([0-9]{1,10})")


def number_of(thread_id: str | None) -> int | None:
    """The number of the session with this thread id; None if it is that of no session."""
    match = _NUMBERED.fullmatch(thread_id or "")
    return int(match[1]) if match else None


class Sessions:
    """Saves sessions, lists and reads them."""

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
        self._capture = capture
        self._rates = rates
        self.written: Counter[str] = Counter()
        """Sessions written since the start, by operation: add or update."""

    async def save(self, caller: Caller, new: NewSession) -> SessionSaved:
        """Save a session. That of the same number in the project is replaced, and its unchanged passages stay.

        It may be that of another app, if the caller may read it. Secrets are redacted unless `capture.secrets` is
        `store`.

        Raises:
            ConflictError: the thread of this number has messages, which must not be replaced.
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: the number, the namespace, the title, the summary or the content is invalid.
        """
        limits = self._limits
        validation.between(new.number, "number", 0, MAX_NUMBER)
        namespace = validation.name(new.namespace, "namespace", limits)
        new = replace(new, title=validation.line(new.title, "title", limits.name, "limits.name"))
        validation.part(new.summary, "summary", limits.text, "limits.text")
        storable(new.content, "content")
        if len(new.content) > MAX_CONTENT:
            problem = f"has {len(new.content):,} characters; the limit is {MAX_CONTENT:,}"
            raise TooLarge("content", problem)
        caller.may_write(namespace)
        await self._rates.save(caller, 1)
        redacted = list[str]()
        if self._capture.secrets != "store":
            new, redacted = await asyncio.to_thread(_redact, new)
        parts, note = await asyncio.to_thread(self._passages, new)
        result = await self._save(caller, replace(new, namespace=namespace), parts)
        result.redacted, result.note = redacted, note
        if result.event is not FileEvent.NONE:
            self.written[result.event.value.lower()] += 1
        self._delivery.wake()
        return result

    def _passages(self, new: NewSession) -> tuple[list[NewPassage], str | None]:
        """The summary, or the title if there is none, and then the text in pieces, each with the title above it."""
        about = new.summary.strip() or new.title
        reader = TextReader(self._capture)
        first = NewPassage(about, None, None, new.title, reader.labels(about), [])
        return [first, *reader.cut(new.content, "markdown", above=new.title)], reader.note

    @retry_on_conflict
    async def _save(self, caller: Caller, new: NewSession, parts: list[NewPassage]) -> SessionSaved:
        hash_ = hashlib.sha256(new.content.encode()).hexdigest()
        thread = f"{_PREFIX}{new.number}"
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "save sessions")
            place = SourceKind.CONVERSATION, thread
            source = await writing.opened_in_project(tx, caller, new.namespace, *place, _saved_sessions())
            result = SessionSaved(source.id, new.number, new.title, new.namespace, FileEvent.NONE, len(parts))
            mine = select(Source.id).where(Source.id == source.id)
            await refuse_unreadable(tx, caller, Source, source.id)
            active = source.state is State.ACTIVE
            if active and await tx.scalar(mine.where(_is_unchanged(new, hash_))) is not None:
                return result
            if source.app_id != caller.app_id:
                result.replaces = await tx.scalar(select(App.name).where(App.id == source.app_id))
                source = await writing.take_over(tx, caller, source, *place)
            # Messages are never replaced by a session.
            if await tx.scalar(select(Passage.id).where(Passage.source_id == source.id, _IS_TURN).limit(1)) is not None:
                raise ConflictError(f"The thread {thread} is a conversation with messages.", code="session_is_thread")
            if not active:
                await passages.erase(tx, Passage.source_id == source.id)
            columns = {
                "hash": hash_, "bytes": len(new.content.encode()), "language": None, "title": new.title,
                "thread_id": thread,
            }  # fmt: skip
            result.changed = await writing.replace_passages(tx, source, PassageKind.SESSION, parts, columns)
            # A conversation is read in the order of its times.
            await tx.execute(_ORDER, {"source": source.id})
            values = {"summary": new.summary, "state": State.ACTIVE, "deleted_at": None, "closed_at": func.now()}
            await tx.execute(update(Source).where(Source.id == source.id).values(values))
            await audit_log.record(tx, caller, AuditAction.SESSION_SAVE, [source.id])
        result.event = FileEvent.UPDATE if active and source.hash is not None else FileEvent.ADD
        return result

    async def list(
        self, caller: Caller, *, namespaces: tuple[str, ...] = (), page: int = 1, size: int = 50
    ) -> SessionPage:
        """A page of the sessions that the caller may read, the last number first.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        which = [_sessions(caller), *listing.within(namespaces, self._limits)]
        await self._rates.search(caller)
        order = _NUMBER.desc(), Source.updated_at.desc(), Source.id
        async with self._database.transaction() as tx:
            rows, total = await listing.page_of(tx, caller, _columns(caller), which, order, page=page, size=size)
            await audit_log.record(tx, caller, AuditAction.SESSION_LIST, detail={"sessions": len(rows)})
        return SessionPage([_session(row) for row in rows], total, page, size)

    async def read(self, caller: Caller, number: int, *, namespaces: tuple[str, ...] = ()) -> SessionText:
        """The session of this number, with its text.

        If there are several, it is that of the first of the namespaces that has one. There, it is the app's own, and
        otherwise the one that was saved last.

        Raises:
            NotFound: there is none, or the caller may not read it.
            Invalid: the number or a namespace is invalid.
        """
        caller.may_read()
        validation.between(number, "number", 0, MAX_NUMBER)
        which = [_sessions(caller), Source.locator == f"{_PREFIX}{number}", *listing.within(namespaces, self._limits)]
        await self._rates.search(caller)
        sources = select(*_columns(caller), Source.id).join(App, App.id == Source.app_id).where(*which)
        first = sources.order_by(*listing.by_namespace(namespaces), *writing.counting(caller)).limit(1)
        columns = (Passage.content, Passage.first_line, Passage.last_line, Passage.labels)
        parts = select(*columns).order_by(Passage.position)
        async with self._database.transaction() as tx:
            if (row := (await tx.execute(first, caller.parameters)).one_or_none()) is None:
                raise NotFound("Session not found", code="session_not_found")
            parts = parts.where(Passage.source_id == row.id, readable_by(caller, Passage))
            rows = (await tx.execute(parts, caller.parameters)).all()
            await audit_log.record(tx, caller, AuditAction.SESSION_READ, [row.id])
        labels = sorted({label for part in rows for label in part.labels})
        return SessionText(_session(row), _join_passages(rows), labels)


_IS_TURN = Passage.kind == literal_column(f"'{PassageKind.TURN.value}'")
_ORDER = text(
    """
    UPDATE passages AS p SET created_at = s.created_at + p.position * interval '1 microsecond'
    FROM sources AS s WHERE s.id = :source AND p.source_id = s.id
    """
)
_NUMBER = cast(func.substr(Source.locator, len(_PREFIX) + 1), BigInteger)


def _columns(caller: Caller) -> tuple[Any, ...]:
    return (
        Source.locator, Source.title, listing.summary(caller), Source.namespace, App.name, Source.length,
        Source.created_at, Source.updated_at,
    )  # fmt: skip


def _sessions(caller: Caller, *states: State) -> ColumnElement[bool]:
    """The sessions that the caller may read, in these states or active."""
    return and_(_saved_sessions(), readable_by(caller, Source, states=states or (State.ACTIVE,)))


def _saved_sessions() -> ColumnElement[bool]:
    """Those conversations that were saved as sessions."""
    kind = Source.kind == literal_column(f"'{SourceKind.CONVERSATION.value}'")
    return and_(kind, Source.hash.is_not(None), Source.locator.regexp_match(f"^{_NUMBERED.pattern}$"))


def _is_unchanged(new: NewSession, hash_: str) -> ColumnElement[bool]:
    return and_(Source.hash == hash_, Source.title == new.title, Source.summary == new.summary)


def _session(row: Any) -> SavedSession:
    thread, title, summary, namespace, app, length, created, updated = row[:8]
    return SavedSession(
        int(thread.removeprefix(_PREFIX)), title or "", summary or "", namespace, app, thread, length, created, updated
    )


def _redact(new: NewSession) -> tuple[NewSession, list[str]]:
    """The session without secrets, and their kinds."""
    kinds, fields = set[str](), dict[str, Any]()
    for field in ("title", "summary", "content"):
        text = getattr(new, field)
        findings = secrets.find(text)
        fields[field] = secrets.without(text, findings)
        kinds |= {each.kind for each in findings}
    return replace(new, **fields), sorted(kinds)


def _join_passages(parts: Iterable[Any]) -> str:
    """The text of a session from its passages, with the blank lines between them. The summary has no lines."""
    joined, line = "", 1
    for part in parts:
        if part.first_line is not None:
            # The pieces of one long line stand next to each other.
            joined += "\n" * (part.first_line - line) + part.content
            line = part.last_line
    return joined
