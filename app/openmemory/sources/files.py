"""The use cases of files. The client reads a folder, and the service cuts and stores the texts.

The service opens no path that a request names. A file that is sent again keeps the passages that are unchanged, so
only new ones are embedded.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import aliased

from openmemory.access.apps import refuse_paused, refuse_unreadable
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import BatchRefused, Invalid, TooLarge
from openmemory.identity.caller import Caller
from openmemory.identity.names import one_line, storable
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.schemas import OnError
from openmemory.sources import listing, passages, writing
from openmemory.sources.cutting import kind_of, language_of
from openmemory.sources.models import Passage, PassageKind, Source, SourceKind
from openmemory.sources.reading import TextReader
from openmemory.sources.schemas import (
    FileEvent,
    FilePage,
    FilePlan,
    FileSeen,
    FilesFinished,
    FileStored,
    NewFile,
    Rename,
    StoredFile,
)

MAX_FILES = 50_000
"""The number of files in one plan."""

MAX_TEXT = 1_000_000
"""The number of characters of one file."""

MAX_PATH = 1_000


class _CutFile(NamedTuple):
    """A file that passed all checks, cut into passages."""

    file: NewFile
    hash: str
    language: str | None
    passages: list[writing.NewPassage]
    redacted: list[str]
    note: str | None


class Files:
    """Stores the texts of files, and keeps them like a folder."""

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
        """Files written since the start, by operation: add, update, rename or remove."""

    async def plan(self, caller: Caller, namespace: str, files: Sequence[FileSeen], *, below: str = "") -> FilePlan:
        """The difference between the files of a folder and those that are stored in the project. Changes nothing.

        Files of other apps count as stored, if the caller may read them. Only the app's own are renamed or gone.
        `below`: only stored files below this folder are compared; empty means all.

        Raises:
            Invalid: a path or the namespace is invalid, or a path is listed twice.
            Forbidden: the credential may not write in the namespace.
        """
        if len(files) > MAX_FILES:
            raise TooLarge("files", f"has {len(files):,} entries; the limit is {MAX_FILES:,}")
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        caller.may_read()
        listed = {checked_path(one.path): one.hash for one in files}
        if len(listed) < len(files):
            raise Invalid("files", "must name each path once")
        below = below and checked_path(below.rstrip("/"), "below") + "/"
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store files")
            theirs = select(Source.locator, Source.hash, Source.app_id).where(_stored_files(caller, namespace))
            rows = (await tx.execute(theirs.order_by(*writing.counting(caller)), caller.parameters)).all()
            await audit_log.record(tx, caller, AuditAction.FILE_PLAN, detail={"files": len(files)})
        stored = {row.locator: row for row in reversed(rows) if row.locator.startswith(below)}
        own = {path for path, row in stored.items() if row.app_id == caller.app_id}
        return _difference(listed, {path: row.hash for path, row in stored.items()}, own)

    async def store(
        self, caller: Caller, namespace: str, files: Sequence[NewFile | Invalid], *, on_error: OnError = "skip"
    ) -> list[FileStored | Invalid]:
        """Store the texts of files. Returns the result of each, in order, or the error that rejected it.

        Secrets are redacted unless `capture.secrets` is `store`. A file with none but blank lines has no passages.

        Raises:
            BatchRefused: no file can be stored, or with `on_error="fail"` one of them cannot.
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: the namespace is invalid.
        """
        validation.count(files, "files", self._limits.batch, "limits.batch")
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        await self._rates.save(caller, -(-len(files) // 10))
        cut = await asyncio.to_thread(lambda: [self._cut(one) for one in files])
        refused = {place: each for place, each in enumerate(cut) if isinstance(each, Invalid)}
        if refused and (len(refused) == len(cut) or on_error == "fail"):
            problem = f"holds {len(refused)} that cannot be stored; nothing was stored"
            raise BatchRefused("files", problem, refused=refused)
        results: list[FileStored | Invalid] = []
        for each in cut:
            results.append(each if isinstance(each, Invalid) else await self._store(caller, namespace, each))
        self._delivery.wake()
        return results

    def _cut(self, new: NewFile | Invalid) -> _CutFile | Invalid:
        if isinstance(new, Invalid):
            return new
        try:
            path = checked_path(new.path, new=True)
            storable(new.text, "text")
            if len(new.text) > MAX_TEXT:
                raise TooLarge("text", f"has {len(new.text):,} characters; the limit is {MAX_TEXT:,}")
            if new.hash is not None:
                validation.name(new.hash, "hash", self._limits)
        except Invalid as error:
            return error
        language = language_of(path)
        reader = TextReader(self._capture, defines=kind_of(language) is PassageKind.CODE)
        passages = reader.read(new.text, language)
        hash_ = new.hash or hashlib.sha256(new.text.encode()).hexdigest()
        return _CutFile(replace(new, path=path), hash_, language, passages, sorted(reader.redacted), reader.note)

    @retry_on_conflict
    async def _store(self, caller: Caller, namespace: str, cut: _CutFile) -> FileStored:
        """Store one file in a transaction of its own: a batch may be long, and each file is whole."""
        result = FileStored(cut.file.path, FileEvent.NONE, len(cut.passages), redacted=cut.redacted, note=cut.note)
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store files")
            place = SourceKind.FILE, cut.file.path
            source = await writing.opened_in_project(tx, caller, namespace, *place)
            await refuse_unreadable(tx, caller, Source, source.id)
            if source.hash == cut.hash:
                return result
            source = await writing.take_over(tx, caller, source, *place)
            kind, values = kind_of(cut.language), {"language": cut.language, "bytes": len(cut.file.text.encode())}
            values["hash"] = cut.hash
            changed = await writing.replace_passages(tx, source, kind, cut.passages, values)
            await audit_log.record(tx, caller, AuditAction.FILE_STORE, [source.id])
        event = FileEvent.ADD if source.hash is None else FileEvent.UPDATE
        self.written[event.value.lower()] += 1
        return replace(result, event=event, changed=changed)

    @retry_on_conflict
    async def finish(
        self, caller: Caller, namespace: str, *, renamed: Sequence[Rename] = (), gone: Sequence[str] = ()
    ) -> FilesFinished:
        """Rename and remove stored files, as a plan lists them. What is not there is left out.

        A renamed file keeps its passages. Nothing is renamed to a path that is stored.

        Raises:
            Invalid: a path or the namespace is invalid.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
        """
        if len(renamed) + len(gone) > MAX_FILES:
            raise TooLarge("gone", f"and renamed have more than {MAX_FILES:,} entries")
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        pairs = [(checked_path(one.old, "renamed"), checked_path(one.new, "renamed", new=True)) for one in renamed]
        removals = [checked_path(path, "gone") for path in gone]
        result = FilesFinished(0, 0)
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store files")
            mine = and_(_stored_files(caller, namespace), Source.app_id == caller.app_id)
            for old, new in pairs:
                other = aliased(Source)
                same_place = (
                    other.app_id == caller.app_id,
                    other.namespace == namespace,
                    other.kind == SourceKind.FILE.value,
                )
                there = exists().where(*same_place, other.locator == new)
                change = update(Source).where(mine, Source.locator == old, ~there)
                change = change.values(locator=new, updated_at=func.now())
                result.renamed += (await tx.execute(change, caller.parameters)).rowcount
            by_path = Source.locator == func.any(bindparam("paths", type_=ARRAY(Text)))
            some = select(Source.id).where(mine, by_path).order_by(Source.id).with_for_update()
            sources = (await tx.scalars(some, {**caller.parameters, "paths": removals})).all()
            await passages.erase(tx, Passage.source_id.in_(sources))
            await tx.execute(delete(Source).where(Source.id.in_(sources)))
            result.removed = len(sources)
            await audit_log.record(tx, caller, AuditAction.FILE_REMOVE, sources, detail={"renamed": result.renamed})
        self.written["rename"] += result.renamed
        self.written["remove"] += result.removed
        self._delivery.wake()
        return result

    async def list(
        self, caller: Caller, *, namespaces: tuple[str, ...] = (), below: str = "", page: int = 1, size: int = 50
    ) -> FilePage:
        """A page of the files that the caller may read, by path. `below`: only those whose path begins so.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        kind = Source.kind == literal_column(f"'{SourceKind.FILE.value}'")
        which = [kind, readable_by(caller, Source), *listing.within(namespaces, self._limits)]
        if below:
            storable(below, "path")
            which.append(func.starts_with(Source.locator, below))
        await self._rates.search(caller)
        size_ = func.coalesce(Source.bytes, 0)
        columns = (
            Source.locator, Source.namespace, App.name, Source.language, size_, Source.length, Source.updated_at,
        )  # fmt: skip
        order = Source.locator, Source.id
        async with self._database.transaction() as tx:
            rows, total = await listing.page_of(tx, caller, columns, which, order, page=page, size=size)
            await audit_log.record(tx, caller, AuditAction.FILE_LIST, detail={"files": len(rows)})
        return FilePage([StoredFile(*row) for row in rows], total, page, size)


def checked_path(path: str, field: str = "path", *, new: bool = False) -> str:
    """Checks that a path is relative to its folder, with `/` between its parts. `new`: and that it is of one line.

    Raises:
        Invalid: it is not.
    """
    storable(path, field)
    if new:
        one_line(path, field)
    if not path or len(path) > MAX_PATH:
        raise Invalid(field, f"must have 1 to {MAX_PATH:,} characters")
    parts = path.split("/")
    if "\\" in path or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        raise Invalid(field, "must be relative to the folder, such as docs/guide.md, without '..' and backslashes")
    return path


def _stored_files(caller: Caller, namespace: str) -> ColumnElement[bool]:
    """The files that are stored in a namespace, as far as the caller may read them."""
    kind = Source.kind == SourceKind.FILE.value
    return and_(Source.namespace == namespace, kind, readable_by(caller, Source))


def _difference(listed: dict[str, str], stored: dict[str, str | None], own: Collection[str]) -> FilePlan:
    gone = {path: stored[path] for path in own if path not in listed}
    # In another language, a file is cut in another way.
    by_hash = {(hash_, language_of(path)): path for path, hash_ in gone.items()}
    plan = FilePlan([], [], [], 0)
    for path, hash_ in listed.items():
        if stored.get(path) == hash_:
            plan.unchanged += 1
        elif path not in stored and (old := by_hash.pop((hash_, language_of(path)), None)) is not None:
            plan.renamed.append(Rename(old, path))
            del gone[old]
        else:
            plan.wanted.append(path)
    plan.gone = sorted(gone)
    return plan
