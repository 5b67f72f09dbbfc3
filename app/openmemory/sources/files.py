"""The use cases of files. The client reads a folder, and the service cuts and stores the texts.

The service opens no path that a request names. A file that is sent again keeps the passages that are unchanged, so
only new ones are embedded.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    Text,
    and_,
    bindparam,
    delete,
    exc,
    exists,
    func,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.orm import aliased

from openmemory.access.apps import refuse_paused
from openmemory.access.models import App
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.content_policy import injection, secrets
from openmemory.database.engine import Database, Tx, violated
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import BatchRefused, Invalid, NotFound, TooLarge
from openmemory.identity.caller import Caller
from openmemory.identity.names import storable
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import validation
from openmemory.memories.schemas import OnError
from openmemory.serialization import exact_json
from openmemory.sources import passages
from openmemory.sources.cutting import FilePiece, kind_of, language_of, pieces
from openmemory.sources.models import Passage, Source, SourceKind
from openmemory.sources.schemas import (
    FileEvent,
    FilePage,
    FilePlan,
    FilesFinished,
    FileStored,
    ListedFile,
    NewFile,
    Rename,
    StoredFile,
)

MAX_FILES = 50_000
"""The number of files in one plan."""

MAX_TEXT = 1_000_000
"""The number of characters of one file."""

MAX_PATH = 1_000
MAX_PAGE_SIZE = 100


class _CutFile(NamedTuple):
    """A file that passed all checks, cut into pieces."""

    file: NewFile
    hash: str
    language: str | None
    pieces: list[FilePiece]
    redacted: list[str]


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

    async def plan(self, caller: Caller, namespace: str, files: Sequence[ListedFile], *, below: str = "") -> FilePlan:
        """The difference between the files of a folder and those that the app has stored. Changes nothing.

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
            mine = select(Source.locator, Source.hash).where(_of_app(caller, namespace))
            rows = await tx.execute(mine, caller.parameters)
            stored = {path: hash_ for path, hash_ in rows if path.startswith(below)}
            await audit_log.record(tx, caller, AuditAction.FILE_PLAN, detail={"files": len(files)})
        return _difference(listed, stored)

    async def store(
        self, caller: Caller, namespace: str, files: Sequence[NewFile | Invalid], *, on_error: OnError = "skip"
    ) -> list[FileStored | Invalid]:
        """Store the texts of files. Returns the result of each, in order, or the error that rejected it.

        Secrets are redacted unless `capture.secrets` is `store`. A file with none but blank lines has no passages.

        Raises:
            BatchRefused: no file can be stored, or with `on_error="fail"` one of them cannot.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
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
            path = checked_path(new.path)
            storable(new.text, "text")
            if len(new.text) > MAX_TEXT:
                raise TooLarge("text", f"has {len(new.text):,} characters; the limit is {MAX_TEXT:,}")
            if new.hash is not None:
                validation.name(new.hash, "hash", self._limits)
        except Invalid as error:
            return error
        language = language_of(path)
        content, redacted = new.text, list[str]()
        if self._capture.secrets != "store":
            found = secrets.find(content)
            content, redacted = secrets.without(content, found), sorted({each.kind for each in found})
        hash_ = new.hash or hashlib.sha256(new.text.encode()).hexdigest()
        return _CutFile(replace(new, path=path), hash_, language, pieces(content, language), redacted)

    @retry_on_conflict
    async def _store(self, caller: Caller, namespace: str, cut: _CutFile) -> FileStored | Invalid:
        """Store one file in a transaction of its own: a batch may be long, and each file is whole."""
        done = FileStored(cut.file.path, FileEvent.NONE, len(cut.pieces), redacted=cut.redacted)
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store files")
            source, hash_ = await _opened(tx, caller, namespace, cut)
            readable = select(Source.id).where(Source.id == source, _of_app(caller, namespace))
            if hash_ is not None and await tx.scalar(readable, caller.parameters) is None:
                return Invalid("path", "is a file that a rule hides from this app", code="file_hidden")
            if hash_ == cut.hash:
                return done
            changed = await self._replace(tx, caller, namespace, source, cut)
            await audit_log.record(tx, caller, AuditAction.FILE_STORE, [source])
        event = FileEvent.ADD if hash_ is None else FileEvent.UPDATE
        self.written[event.value.lower()] += 1
        return replace(done, event=event, changed=changed)

    async def _replace(self, tx: Tx, caller: Caller, namespace: str, source: UUID, cut: _CutFile) -> int:
        """Make the passages of a source those of a text. Returns the number of new ones. Equal ones keep their row."""
        kind = kind_of(cut.language)
        kept = defaultdict[tuple[str, str | None], list[UUID]](list)
        columns = Passage.id, Passage.content, Passage.heading
        for id_, content, heading in await tx.execute(
            select(*columns).where(Passage.source_id == source).order_by(Passage.position.desc())
        ):
            kept[content, heading].append(id_)
        moved, new = list[dict[str, Any]](), list[dict[str, Any]]()
        for position, piece in enumerate(cut.pieces, 1):
            place = {"position": position, "first_line": piece.first_line, "last_line": piece.last_line}
            if same := kept[piece.content, piece.heading]:
                moved.append(place | {"id": same.pop()})
            else:
                labels = [injection.LABEL] if self._labels(piece.content) else []
                new.append(
                    place | {"id": uuid4(), "content": piece.content, "heading": piece.heading, "labels": labels}
                )
        await passages.erase(tx, Passage.id.in_([id_ for ids in kept.values() for id_ in ids]))
        # Positions are unique, so that they are first moved out of the way.
        await tx.execute(_MOVE, {"source": source, "rows": exact_json.for_jsonb(moved)})
        values = {
            "source_id": source, "user_id": caller.user_id, "app_id": caller.app_id, "namespace": namespace,
            "kind": kind.value, "rows": exact_json.for_jsonb(new), "hash": cut.hash, "language": cut.language,
            "bytes": len(cut.file.text.encode()), "length": len(cut.pieces),
        }  # fmt: skip
        await tx.execute(_SETTLE, {"source": source})
        await tx.execute(_ADD, values)
        return len(new)

    def _labels(self, content: str) -> bool:
        return self._capture.injection != "store" and injection.instructs(content)

    @retry_on_conflict
    async def finish(
        self, caller: Caller, namespace: str, *, renamed: Sequence[Rename] = (), gone: Sequence[str] = ()
    ) -> FilesFinished:
        """Rename and remove stored files, as a plan has told. What is not there is left out.

        A renamed file keeps its passages. Nothing is renamed to a path that is stored.

        Raises:
            Invalid: a path or the namespace is invalid.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
        """
        if len(renamed) + len(gone) > MAX_FILES:
            raise TooLarge("gone", f"and renamed have more than {MAX_FILES:,} entries")
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        pairs = [(checked_path(one.old, "renamed"), checked_path(one.new, "renamed")) for one in renamed]
        left = [checked_path(path, "gone") for path in gone]
        done = FilesFinished(0, 0)
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "store files")
            mine = _of_app(caller, namespace)
            for old, new in pairs:
                other = aliased(Source)
                taken = other.app_id == caller.app_id, other.namespace == namespace, other.kind == SourceKind.FILE.value
                there = exists().where(*taken, other.locator == new)
                change = update(Source).where(mine, Source.locator == old, ~there)
                change = change.values(locator=new, updated_at=func.now())
                done.renamed += (await tx.execute(change, caller.parameters)).rowcount
            asked = Source.locator == func.any(bindparam("paths", type_=ARRAY(Text)))
            some = select(Source.id).where(mine, asked).order_by(Source.id).with_for_update()
            sources = (await tx.scalars(some, {**caller.parameters, "paths": left})).all()
            await passages.erase(tx, Passage.source_id.in_(sources))
            await tx.execute(delete(Source).where(Source.id.in_(sources)))
            done.removed = len(sources)
            await audit_log.record(tx, caller, AuditAction.FILE_REMOVE, sources, detail={"renamed": done.renamed})
        self.written["rename"] += done.renamed
        self.written["remove"] += done.removed
        self._delivery.wake()
        return done

    async def list(
        self, caller: Caller, *, namespaces: tuple[str, ...] = (), below: str = "", page: int = 1, size: int = 50
    ) -> FilePage:
        """A page of the files that the caller may read, by path. `below`: only those whose path begins so.

        Raises:
            Invalid: a namespace, the page or its size is invalid.
        """
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        which = [Source.kind == literal_column(f"'{SourceKind.FILE.value}'"), readable_by(caller, Source)]
        if namespaces:
            which.append(Source.namespace.in_([validation.name(one, "namespace", self._limits) for one in namespaces]))
        if below:
            storable(below, "path")
            which.append(func.starts_with(Source.locator, below))
        await self._rates.search(caller)
        size_ = func.coalesce(Source.bytes, 0)
        columns = (
            Source.locator, Source.namespace, App.name, Source.language, size_, Source.length, Source.updated_at,
        )  # fmt: skip
        rows = select(*columns).join(App, App.id == Source.app_id).where(*which)
        some = rows.order_by(Source.locator, Source.id).offset((page - 1) * size).limit(size)
        async with self._database.transaction() as tx:
            total = await tx.scalar(select(func.count()).select_from(Source).where(*which), caller.parameters) or 0
            items = [StoredFile(*row) for row in await tx.execute(some, caller.parameters)]
            await audit_log.record(tx, caller, AuditAction.FILE_LIST, detail={"files": len(items)})
        return FilePage(items, total, page, size)


def checked_path(path: str, field: str = "path") -> str:
    """Checks that a path is relative to its folder, with `/` between its parts.

    Raises:
        Invalid: it is not.
    """
    storable(path, field)
    if not path or len(path) > MAX_PATH:
        raise Invalid(field, f"must have 1 to {MAX_PATH:,} characters")
    parts = path.split("/")
    if "\\" in path or ":" in parts[0] or any(part in ("", ".", "..") for part in parts):
        raise Invalid(field, "must be relative to the folder, such as src/main.py, without '..' and backslashes")
    return path


def _of_app(caller: Caller, namespace: str) -> ColumnElement[bool]:
    """The files that the app has stored in a namespace, as far as it may read them."""
    own = Source.app_id == caller.app_id, Source.namespace == namespace, Source.kind == SourceKind.FILE.value
    return and_(*own, readable_by(caller, Source))


def _difference(listed: dict[str, str], stored: dict[str, str | None]) -> FilePlan:
    gone = {path: hash_ for path, hash_ in stored.items() if path not in listed}
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


async def _opened(tx: Tx, caller: Caller, namespace: str, cut: _CutFile) -> tuple[UUID, str | None]:
    """The source of a file, locked until the transaction ends, and its hash; None if it is new."""
    values = {
        "user_id": caller.user_id, "app_id": caller.app_id, "namespace": namespace, "kind": SourceKind.FILE,
        "locator": cut.file.path, "infer": False,
    }  # fmt: skip
    made = pg_insert(Source).values(values)
    # Changes nothing, but locks the row.
    made = made.on_conflict_do_update(
        constraint="uq_sources_app_id_namespace_kind_locator", set_={"length": Source.length}
    )
    try:
        row = (await tx.execute(made.returning(Source.id, Source.hash))).one()
    except exc.IntegrityError as error:
        if violated(error).startswith("fk_"):
            raise NotFound("The user or app was erased a moment ago.", code="user_not_found") from error
        raise
    return row.id, row.hash


_MOVE = text(
    """
    UPDATE passages AS p SET position = -r.position, first_line = r.first_line, last_line = r.last_line
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(id uuid, position integer, first_line integer, last_line integer)
    WHERE p.id = r.id AND p.source_id = :source
    """
)
_SETTLE = text("UPDATE passages SET position = -position WHERE source_id = :source AND position < 0")
_ADD = text(
    f"""
    WITH new AS (
        INSERT INTO passages (id, source_id, user_id, app_id, namespace, kind, position, heading, first_line, last_line,
                              content, labels)
        SELECT id, :source_id, :user_id, :app_id, :namespace, :kind, position, heading, first_line, last_line, content,
               labels
        FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
            id uuid, position integer, heading text, first_line integer, last_line integer, content text, labels text[])
        RETURNING id, user_id
    ), source AS (
        UPDATE sources SET hash = :hash, language = :language, bytes = :bytes, length = :length, updated_at = now()
        WHERE id = :source_id
    ), entries AS (
        {outbox.ADD_ENTRIES.format(
            kind=f"'{ItemKind.PASSAGE.value}'", id="new.id", user="new.user_id", source="FROM new"
        )}
    )
    SELECT count(*) FROM new
    """  # noqa: S608 - only constants are put in
)  # fmt: skip
