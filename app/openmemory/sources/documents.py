"""The use cases of documents: texts of PDFs and other files, cut into passages, and the originals.

A document that is sent again under its name keeps the passages that are unchanged.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, false, func, literal_column, select, text

from openmemory.access.apps import refuse_if_paused, refuse_paused, refuse_unreadable
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
from openmemory.errors import ConflictError, Invalid, NotFound, TooLarge, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.names import storable
from openmemory.identity.principal import Principal
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.state import State
from openmemory.objects.service import Objects
from openmemory.sources import lifecycle, listing, passages, writing
from openmemory.sources.files import checked_path
from openmemory.sources.models import Passage, PassageKind, Source, SourceKind
from openmemory.sources.reading import TextReader
from openmemory.sources.schemas import (
    DocumentPage,
    DocumentPassage,
    DocumentsChanged,
    DocumentStored,
    DocumentText,
    FileEvent,
    NewDocument,
    StoredDocument,
)
from openmemory.sources.text_extraction.child import MAX_CHARACTERS
from openmemory.sources.text_extraction.extraction import Extracted, TextExtraction
from openmemory.sources.writing import NewPassage
from openmemory.uploads.admission import Admission
from openmemory.uploads.spool import Spool

log = logging.getLogger(__name__)

_UPLOADS_AT_ONCE = 4
_CHUNK = 1024 * 1024
_PATIENCE = 30.0
"""The seconds that an upload waits for others."""

_COLUMNS = (
    Source.id, Source.locator, Source.namespace, App.name, Source.title, Source.media_type,
    func.coalesce(Source.bytes, 0), Source.length, Source.object_key.is_not(None), Source.created_at, Source.updated_at,
)  # fmt: skip


class Download(NamedTuple):
    """The original of a document, to be streamed."""

    document: StoredDocument
    content: AsyncIterator[bytes]


class _ReadDocument(NamedTuple):
    """A document that was read: its hash, its size, and its passages without secrets."""

    hash: str
    bytes: int
    extracted: Extracted
    passages: list[NewPassage]
    redacted: list[str]
    note: str | None


class Documents:
    """Stores documents, lists, reads and deletes them."""

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        objects: Objects,
        *,
        keep: bool,
        folder: Path,
        limits: LimitSettings,
        capture: CaptureSettings,
        rates: RateLimiter,
    ) -> None:
        """`keep`: originals are kept by default. `folder`: the data folder, in which uploads have temporary files."""
        self._database = database
        self._delivery = delivery
        self._objects = objects
        self._keep = keep
        self._extraction = TextExtraction()
        self._folder = folder
        self._limits = limits
        self._capture = capture
        self._rates = rates
        busy = "Other documents are being stored. Try again later."
        self._uploads = Admission(_UPLOADS_AT_ONCE, _PATIENCE, busy=busy, code="documents_busy")
        self.written: Counter[str] = Counter()
        """Documents written since the start, by operation: add, update, delete, restore or erase."""

    @asynccontextmanager
    async def upload(self, principal: Principal) -> AsyncIterator[Spool]:
        """A file for a document that comes in. It is gone when the block ends.

        Raises:
            Unavailable: there are too many uploads, or the disk is full.
        """
        async with self._uploads.turn(principal.id):
            file = Spool(self._folder)
            try:
                yield file
            finally:
                file.close()

    async def store(self, caller: Caller, new: NewDocument, content: BinaryIO) -> DocumentStored:
        """Store a document: its text as passages, and its original if it is to be kept.

        Secrets are redacted in the passages unless `capture.secrets` is `store`. The original is stored as it is.

        Raises:
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: the name, the namespace or the title is invalid, or the content cannot be read.
            Unavailable: PostgreSQL or the store of documents does not answer.
        """
        limits = self._limits
        name = checked_path(new.name, "name", new=True)
        namespace = validation.name(new.namespace, "namespace", limits)
        title = None if new.title is None else validation.line(new.title, "title", limits.name, "limits.name")
        validation.ttl(new.ttl_days, None)
        caller.may_write(namespace)
        await self._rates.save(caller, 1)
        size = content.seek(0, 2)
        if size > limits.document:
            raise TooLarge("file", f"has {size:,} bytes; the limit is {limits.document:,} (limits.document)")
        await self._refuse_early(caller)
        extracted = await self._extraction.extract(name, content)
        read = await asyncio.to_thread(self._read, content, size, extracted)
        if not read.passages:
            problem = "has no text; a scan must be read by a program for text recognition (OCR) first"
            raise Invalid("file", problem, code="document_without_text")
        if title is not None and self._capture.secrets != "store":
            title = secrets.redacted(title)
        keep = self._keep if new.keep is None else new.keep
        new = replace(new, name=name, namespace=namespace, title=title, keep=keep)
        key = None if await self._same(caller, new, read) else await self._store_original(caller, new, content)
        result = await self._store(caller, new, read, key)
        if result.event is not FileEvent.NONE:
            self.written[result.event.value.lower()] += 1
        self._delivery.wake()
        return result

    async def _refuse_early(self, caller: Caller) -> None:
        """Refuse a paused app before its document is read."""
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store documents")

    async def _store_original(self, caller: Caller, new: NewDocument, content: BinaryIO) -> str | None:
        return await self._objects.put(caller.user_id, content) if new.keep else None

    def _read(self, content: BinaryIO, size: int, extracted: Extracted) -> _ReadDocument:
        content.seek(0)
        hash_ = hashlib.sha256()
        while data := content.read(_CHUNK):
            hash_.update(data)
        passages, reader = list[NewPassage](), TextReader(self._capture)
        for part in extracted.parts:
            some = reader.read(part.text, extracted.language, above=part.heading)
            passages += some if extracted.lines else [each._replace(first_line=None, last_line=None) for each in some]
        cut = f"Only the first {MAX_CHARACTERS:,} characters are stored." if extracted.cut else None
        notes = " ".join(note for note in (cut, reader.note) if note) or None
        return _ReadDocument(hash_.hexdigest(), size, extracted, passages, sorted(reader.redacted), notes)

    async def _same(self, caller: Caller, new: NewDocument, read: _ReadDocument) -> bool:
        """The document is stored already, so that nothing has to be written."""
        query = select(Source.id).where(
            _documents(caller), Source.app_id == caller.app_id, Source.namespace == new.namespace,
            Source.locator == new.name, _is_unchanged(new, read),
        )  # fmt: skip
        async with self._database.transaction() as tx:
            return await tx.scalar(query, caller.parameters) is not None

    @retry_on_conflict
    async def _store(self, caller: Caller, new: NewDocument, read: _ReadDocument, key: str | None) -> DocumentStored:
        extracted = read.extracted
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store documents")
            source = await writing.opened(tx, caller, new.namespace, SourceKind.DOCUMENT, new.name)
            if await lifecycle.end_expired(tx, [source.id]):
                source = source._replace(state=State.DELETED)
            result = DocumentStored(
                source.id, new.name, new.namespace, FileEvent.NONE, extracted.media_type, read.bytes,
                len(read.passages), kept=bool(new.keep), redacted=read.redacted, note=read.note,
            )  # fmt: skip
            mine = select(Source.id).where(Source.id == source.id)
            await refuse_unreadable(tx, caller, Source, source.id)
            is_new = source.hash is None or source.state is State.DELETED
            if source.state is State.DELETED:
                await passages.erase(tx, Passage.source_id == source.id)
            elif key is None and await tx.scalar(mine.where(_is_unchanged(new, read))) is not None:
                return result
            values = {
                "hash": read.hash, "bytes": read.bytes, "language": extracted.language, "title": new.title,
                "media_type": extracted.media_type, "object_key": key,
            }  # fmt: skip
            result.changed = await writing.replace_passages(tx, source, PassageKind.DOCUMENT, read.passages, values)
            await tx.execute(_EXPIRY, {"source": source.id, "days": new.ttl_days})
            if key is not None:
                await self._objects.keep(tx, key)
            elif new.keep:  # it was stored with its original when this began, and is not any more
                raise ConflictError("The document was changed meanwhile. Send it again.", code="document_changed")
            await audit_log.record(tx, caller, AuditAction.DOCUMENT_STORE, [source.id])
        result.event = FileEvent.ADD if is_new else FileEvent.UPDATE
        return result

    async def list(
        self, caller: Caller, *, namespaces: tuple[str, ...] = (), below: str = "", page: int = 1, size: int = 50
    ) -> DocumentPage:
        """A page of the documents that the caller may read, by name. `below`: only those whose name begins so.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        which = [_documents(caller), *listing.within(namespaces, self._limits)]
        if below:
            storable(below, "name")
            which.append(func.starts_with(Source.locator, below))
        await self._rates.search(caller)
        order = Source.locator, Source.id
        async with self._database.transaction() as tx:
            rows, total = await listing.page_of(tx, caller, _COLUMNS, which, order, page=page, size=size)
            await audit_log.record(tx, caller, AuditAction.DOCUMENT_LIST, detail={"documents": len(rows)})
        return DocumentPage([StoredDocument(*row) for row in rows], total, page, size)

    async def text(self, caller: Caller, document: UUID, *, page: int = 1, size: int = 50) -> DocumentText:
        """A document and a page of its passages, in order.

        Raises:
            NotFound: there is no such document, or the caller may not read it.
            Invalid: the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        await self._rates.search(caller)
        columns = (
            Passage.id, Passage.position, Passage.heading, Passage.first_line, Passage.last_line, Passage.content,
            Passage.labels,
        )  # fmt: skip
        rows = select(*columns).where(Passage.source_id == document, readable_by(caller, Passage))
        some = rows.order_by(Passage.position).offset((page - 1) * size).limit(size)
        async with self._database.transaction() as tx:
            record = await self._find(tx, caller, document)
            items = [DocumentPassage(*row) for row in await tx.execute(some, caller.parameters)]
            await audit_log.record(tx, caller, AuditAction.DOCUMENT_READ, [document])
        return DocumentText(record, items, record.passages, page, size)

    async def download(self, caller: Caller, document: UUID) -> Download:
        """The original of a document.

        Raises:
            NotFound: there is no such document, the caller may not read it, or its original was not kept.
            Unavailable: the store of documents does not answer.
        """
        caller.may_read()
        await self._rates.search(caller)
        async with self._database.transaction() as tx:
            record = await self._find(tx, caller, document)
            key = await tx.scalar(select(Source.object_key).where(Source.id == document))
            await audit_log.record(tx, caller, AuditAction.DOCUMENT_DOWNLOAD, [document])
        if key is None:
            raise NotFound("The original of this document was not kept.", code="original_not_kept")
        return Download(record, await self._objects.get(caller.user_id, key))

    async def find_by_name(self, caller: Caller, name: str, namespaces: tuple[str, ...] = ()) -> UUID:
        """The document of this name that was changed last, of the first of the namespaces that has one.

        Raises:
            NotFound: there is none, or the caller may not read it.
            Invalid: the name or a namespace is invalid.
        """
        caller.may_read()
        same_name = Source.locator == checked_path(name, "name")
        which = [_documents(caller), same_name, *listing.within(namespaces, self._limits)]
        order = *listing.by_namespace(namespaces), Source.updated_at.desc(), Source.id
        last = select(Source.id).where(*which).order_by(*order).limit(1)
        async with self._database.transaction() as tx:
            if (id_ := await tx.scalar(last, caller.parameters)) is None:
                raise no_document()
        return id_

    @staticmethod
    async def _find(tx: Any, caller: Caller, document: UUID) -> StoredDocument:
        query = select(*_COLUMNS).join(App, App.id == Source.app_id).where(_documents(caller), Source.id == document)
        if (row := (await tx.execute(query, caller.parameters)).one_or_none()) is None:
            raise no_document()
        return StoredDocument(*row)

    async def delete(self, caller: Caller, document: UUID) -> DocumentsChanged:
        """Soft-delete a document. It is no longer found; `restore` brings it back.

        Raises:
            NotFound: there is no such document, or the caller may not read it.
        """
        return await self._move(caller, document, State.DELETED)

    async def restore(self, caller: Caller, document: UUID) -> DocumentsChanged:
        """Make a deleted document active again. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: no such document is deleted.
        """
        caller.must_be_owner("restore documents", everywhere=False)
        return await self._move(caller, document, State.ACTIVE)

    @retry_on_conflict
    async def _move(self, caller: Caller, document: UUID, target: State) -> DocumentsChanged:
        caller.may_write()
        deletes = target is State.DELETED
        before = State.ACTIVE if deletes else State.DELETED
        which = and_(_documents(caller, before), Source.id == document)
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, f"{'delete' if deletes else 'restore'} documents")
            sources, changed = await lifecycle.move(tx, caller, which, target)
            if not sources:
                raise no_document()
            action = AuditAction.DOCUMENT_DELETE if deletes else AuditAction.DOCUMENT_RESTORE
            await audit_log.record(tx, caller, action, [document])
        self.written["delete" if deletes else "restore"] += 1
        self._delivery.wake()
        return DocumentsChanged(document, len(changed))

    @retry_on_conflict
    async def erase(self, caller: Caller, document: UUID) -> DocumentsChanged:
        """Permanently remove a document with its passages, vectors and original. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: there is no such document, or it is not the caller's.
        """
        caller.must_be_owner("erase documents for good", everywhere=False)
        caller.may_write()
        which = and_(_documents(caller, State.ACTIVE, State.DELETED), Source.id == document)
        async with self._database.transaction() as tx:
            sources, erased = await lifecycle.erase(tx, caller, which)
            if not sources:
                raise no_document()
            await audit_log.record(tx, caller, AuditAction.DOCUMENT_ERASE, [document])
        self.written["erase"] += 1
        self._delivery.wake()
        try:
            await self._objects.sweep()
        except Unavailable as error:  # a job tries again
            log.info("the original of an erased document waits for its deletion: %s", error)
        return DocumentsChanged(document, len(erased))


def no_document() -> NotFound:
    """The error for a document that is unknown or not the caller's."""
    return NotFound("Document not found", code="document_not_found")


def _documents(caller: Caller, *states: State) -> ColumnElement[bool]:
    """The documents that the caller may read, in these states or active."""
    kind = Source.kind == literal_column(f"'{SourceKind.DOCUMENT.value}'")
    return and_(kind, readable_by(caller, Source, states=states or (State.ACTIVE,)))


def _is_unchanged(new: NewDocument, read: _ReadDocument) -> ColumnElement[bool]:
    """The stored document has this content and this title, and its original if it is to be kept."""
    if new.ttl_days is not None:
        return false()
    has_original = Source.object_key.is_not(None)
    return and_(
        Source.hash == read.hash, Source.title.is_not_distinct_from(new.title),
        has_original if new.keep else ~has_original,
        Source.expires_at.is_(None),
    )  # fmt: skip


_EXPIRY = text(
    """
    WITH document AS (
        UPDATE sources SET expires_at = now() + make_interval(days => CAST(:days AS integer)) WHERE id = :source
        RETURNING id, expires_at
    )
    UPDATE passages AS p SET expires_at = d.expires_at FROM document AS d WHERE p.source_id = d.id
    AND p.expires_at IS DISTINCT FROM d.expires_at
    """
)
