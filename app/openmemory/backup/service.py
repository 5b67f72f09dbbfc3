"""Exports all memories of a user, and imports them again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Literal

from psycopg import errors as pg
from sqlalchemy import exc, text

from openmemory.access import directory
from openmemory.access.directory import Directory
from openmemory.access.restore import ComparedIds, adopt_ids, drop_unbound_rules, restore_user
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.backup import staging
from openmemory.backup.container import Container
from openmemory.backup.exporting import ArchiveWriter, ExportSelection
from openmemory.backup.format import UNPACKED, too_much
from openmemory.backup.reading import CopyRows, rows
from openmemory.backup.records import Records
from openmemory.backup.report import MAX_LISTED, ImportReport, MemoriesReport
from openmemory.capture import restore as of_captures
from openmemory.categories import shared
from openmemory.categories.restore import restore_descriptions
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.pool import driver_of
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.index.space import Spaces
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories.analyze import AnalyzeAfterWrites
from openmemory.memories.restore import planning, writing
from openmemory.memories.schemas import OnError
from openmemory.memories.service import Memories
from openmemory.projects import restore as of_projects
from openmemory.sources import restore as of_sources
from openmemory.uploads.admission import Admission
from openmemory.uploads.spool import Spool, look_for_room

Mode = Literal["overwrite", "skip"]
"""The handling of existing memories: overwrite them with the archive's version, or leave them unchanged."""

Stage = Literal["reading", "checking", "writing"]

Progress = Callable[[Stage, int, int | None], None]
"""Called with the progress: the stage, the amount done, and the total amount, or None if it is unknown."""

_AT_ONCE = 2
"""Archives that a process writes or reads at a time. Each holds a connection and a file on disk."""
_READING = 600.0
_PACE = 50_000
"""Reading an archive may take `_READING` seconds, plus one second for every `_PACE` bytes."""
_SPACE_CHECK_BYTES = 16 * 1024 * 1024
"""Bytes copied between two checks of the free disk space."""
_WRITE_FACTOR = 3
"""The bytes that PostgreSQL writes for each copied byte: rows, indexes and the write-ahead log."""
_PATIENCE = 30.0
"""The seconds for which another import waits for its turn."""
_MAX_STATEMENT_SECONDS = 3600
"""Maximum duration, in seconds, of one statement on a whole archive."""
_ATTEMPTS = 4
_SOME_IDS = 500 * 37
"""Bytes of ids copied at once: whole lines of 36 characters and a newline."""
_MODEL = 10.0
"""Seconds within which a model must report its dimension."""


def no_progress(_stage: Stage, _amount: int, _total: int | None) -> None:
    """Ignores the progress."""


class Backup:
    """Export and import of archives. Only the user themself may do this, with access to all of their memories."""

    def __init__(
        self,
        database: Database,
        memories: Memories,
        directory: Directory,
        delivery: OutboxDelivery,
        spaces: Spaces,
        *,
        folder: Path,
        limits: LimitSettings,
        analyze_after_writes: AnalyzeAfterWrites,
        version: str,
    ) -> None:
        self._database = database
        self._memories = memories
        self._directory = directory
        self._delivery = delivery
        self._spaces = spaces
        self._folder = folder
        self._limits = limits
        self._analyze_after_writes = analyze_after_writes
        self._generator = f"openmemory {version}"
        self._turns = Admission(_AT_ONCE, _PATIENCE)
        self._uploads = Admission(2 * _AT_ONCE, 2 * _PATIENCE)

    def may_export(self, caller: Caller) -> None:
        """
        Raises:
            Forbidden: the caller is an app, or its credential may not read all of the user's data.
        """
        caller.must_be_owner("export their memories")
        caller.may_read()

    def may_import(self, caller: Caller) -> None:
        """
        Raises:
            Forbidden: the caller is an app, or its credential may not write all of the user's data.
        """
        caller.must_be_owner("import memories")
        caller.may_write()

    async def export(self, caller: Caller, selection: ExportSelection) -> BinaryIO:
        """A complete archive, positioned at its start. The caller must close it, which frees its disk space.

        It is written to a file first. A failure midway is therefore an error and not a partial archive; a slow reader
        holds neither a snapshot nor a connection; and the access is logged before the first byte leaves.

        Raises:
            Unavailable: PostgreSQL is unavailable, the disk is full, or too many archives are being written.
        """
        self.may_export(caller)
        async with self._turns.turn(str(caller.user_id)):
            archive, ids = Spool(self._folder), Spool(self._folder)
            try:
                async with self._database.long_transaction(_MAX_STATEMENT_SECONDS, snapshot=True) as tx:
                    writer = ArchiveWriter(tx, caller.user_id, selection, generator=self._generator)
                    count = await writer.write(archive, ids)
                await self._log_export(caller, selection, ids, count)
            except BaseException:
                archive.close()
                raise
            finally:
                ids.close()
        archive.file.seek(0)
        return archive.file

    async def _log_export(self, caller: Caller, selection: ExportSelection, ids: Spool, count: int) -> None:
        detail = {"archive": True, "vectors": selection.vectors, "whole": selection.whole}
        ids.seek(0)
        async with self._database.long_transaction(_MAX_STATEMENT_SECONDS) as tx:
            await tx.execute(text("CREATE TEMPORARY TABLE exported (id uuid) ON COMMIT DROP"))
            while data := await asyncio.to_thread(ids.file.read, _SOME_IDS):
                await _copy(tx, "exported", data)
            await tx.execute(text("ANALYZE exported"))
            if count:
                await access_log.log_chosen(tx, caller, AccessType.EXPORT, "SELECT id FROM exported")
            await audit_log.record_chosen(
                tx, caller, AuditAction.MEMORY_EXPORT, "SELECT id FROM exported", detail=detail
            )

    @asynccontextmanager
    async def upload(self, principal: Principal) -> AsyncIterator[Spool]:
        """A file for an uploaded archive. `restore` closes it; if the upload fails, it is closed here.

        Raises:
            Unavailable: there are too many uploads, or the disk is full.
        """
        async with self._uploads.turn(principal.id):
            file = Spool(self._folder)
            try:
                yield file
            except BaseException:
                file.close()
                raise

    async def restore(
        self,
        caller: Caller,
        archive: Spool,
        mode: Mode,
        progress: Progress = no_progress,
        *,
        on_error: OnError = "skip",
        dry_run: bool = False,
    ) -> ImportReport:
        """Imports an archive in one transaction, and closes it. `dry_run`: rolls it back, and only reports; the caller
        may then be a user who does not exist.

        Items that `capture` refuses or that exceed a limit are left out and reported. Everything else is checked first:
        an inconsistent archive changes nothing.

        Raises:
            Invalid: something would be left out, and `on_error` is `fail`.
            BadArchive: the file is not an archive, or has invalid content; the message states where.
            ConflictError: other transactions kept writing the same data.
            Unavailable: PostgreSQL is unavailable, or too many archives are being imported.
        """
        try:
            self.may_import(caller)
            counts, ids, records = await self._restore(caller, archive, mode, progress, on_error, dry_run=dry_run)
        finally:
            archive.close()
        if not dry_run:
            self._after_import(caller, counts, ids)
        return ImportReport(
            memories=MemoriesReport.model_validate({**counts, "left_out": records.left_out_counts["memories"]}),
            left_out=records.left_out.items,
            mended=records.left_out.mended,
            notes=records.left_out.notes,
            adopted_ids=ids.adopted_names[:MAX_LISTED],
            kept_ids=ids.unchanged_names[:MAX_LISTED],
            **counts,
        )

    def _after_import(self, caller: Caller, counts: dict[str, int], ids: ComparedIds) -> None:
        if ids.adopted_names:
            self._directory.forget(caller.user)
        self._delivery.wake()
        self._analyze_after_writes.wrote(counts["added"] + counts["replaced"])
        self._memories.written["add"] += counts["added"]
        self._memories.written["update"] += counts["replaced"]

    async def _restore(
        self, caller: Caller, archive: Spool, mode: Mode, progress: Progress, on_error: OnError, *, dry_run: bool
    ) -> tuple[dict[str, int], ComparedIds, Records]:
        records = Records(self._memories.intake, self._limits, caller.principal, datetime.now(UTC).isoformat())
        async with self._turns.turn(str(caller.user_id)):
            models = await self._models()
            container = await asyncio.to_thread(Container, archive.file, unpacked=UNPACKED * self._limits.backup)
            async with self._database.long_transaction(_MAX_STATEMENT_SECONDS) as tx:
                await staging.make(tx)
                await self._read(tx, container, records, progress)
                progress("checking", 0, None)
                await self._check(tx, records)
                if on_error == "fail":  # before anything is created that others can see
                    records.left_out.refuse_any()
                # Others wait for a category of a dry run until it is rolled back. Nothing of it may stay.
                categories = await shared.make(tx, None if dry_run else self._database)
                counts, ids = await self._write(tx, caller, records, mode, progress, models=models)
                if on_error == "fail":
                    records.left_out.refuse_any()
                if dry_run:
                    await tx.rollback()
                return {**counts, "categories": categories}, ids, records

    async def _read(self, tx: Tx, container: Container, records: Records, progress: Progress) -> None:
        pending: Iterator[CopyRows] = rows(container, records)
        progress("reading", 0, container.size)
        total = unchecked = 0
        seconds = _READING + container.size / _PACE
        try:
            async with asyncio.timeout(seconds) as deadline:
                while (batch := await asyncio.to_thread(next, pending, None)) is not None:
                    total += len(batch.data)
                    unchecked += len(batch.data)
                    if unchecked >= _SPACE_CHECK_BYTES:
                        unchecked = 0
                        await asyncio.to_thread(look_for_room, self._folder, _WRITE_FACTOR * total)
                    await _copy(tx, batch.table, batch.data)
                    progress("reading", batch.read, container.size)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise too_much(f"it took more than {seconds:,.0f} seconds to read") from None

    async def _models(self) -> list[tuple[str, int]]:
        """The models in use, with their dimensions. A model that does not answer is included if it ever did."""
        models = []
        for space in (self._spaces.serving, self._spaces.building):
            if space is not None:
                with suppress(EmbedderUnavailable, TimeoutError):
                    async with asyncio.timeout(_MODEL):
                        models.append((space.model, await space.dimension()))
        return models

    async def _check(self, tx: Tx, records: Records) -> None:
        await staging.reject_duplicates(tx)
        for item, id_, problem in await staging.orphans(tx, MAX_LISTED):
            records.left_out.add(item, id_, problem)
        if not records.ours:
            for id_ in await drop_unbound_rules(tx):
                records.left_out.add("rule", id_, "subject_id: is missing; OpenMemory never applied this rule")
        await staging.prepare(tx)

    async def _write(
        self,
        tx: Tx,
        caller: Caller,
        records: Records,
        mode: Mode,
        progress: Progress,
        *,
        models: list[tuple[str, int]],
    ) -> tuple[dict[str, int], ComparedIds]:
        """Plans and writes the import. Retries if another transaction wrote the same id or text first."""
        if caller.known_user is None:  # a dry run for a new user, which is rolled back
            user_id, app_id = await directory.make(tx, caller.user, caller.app)
            caller = replace(caller, user_id=user_id, app_id=app_id)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                async with tx.begin_nested():
                    progress("writing", 0, 2)
                    owner, ids = await adopt_ids(tx, caller, records.user)
                    apps = await planning.plan(tx, owner, overwrite=mode == "overwrite")
                    progress("writing", 1, 2)
                    detail = {"mode": mode, **({"former_user_id": ids.former_user_id} if ids.former_user_id else {})}
                    descriptions = {"descriptions": await restore_descriptions(tx, owner)}
                    counts = await writing.write(tx, owner, detail={**detail, **descriptions}, models=models)
                    if records.user is not None:
                        await restore_user(tx, owner, records.user)
                    captures, no_captures = await of_captures.restore_captures(tx, owner, MAX_LISTED)
                    await of_projects.restore_links(tx, owner)
                    await of_projects.restore_projects(tx, owner)
                    pieces = await of_sources.restore_sources(tx, owner, models=models)
                    unwritten_records = [*await writing.unwritten_records(tx, MAX_LISTED), *no_captures]
                    progress("writing", 2, 2)
            except exc.DBAPIError as error:
                if isinstance(error.orig, pg.NumericValueOutOfRange):
                    words = (
                        "A memory already has the highest possible revision, so the archive's text cannot replace it."
                    )
                    raise ConflictError(words, code="revisions_used_up") from error
                if not _is_conflict(error.orig):
                    raise
                if attempt == _ATTEMPTS:
                    words = "Other requests changed the same memories during the import."
                    raise ConflictError(words, code="import_conflict", hint="Send it again.") from error
            else:
                for kind, id_, problem in unwritten_records:
                    records.left_out.add(kind, id_, problem)
                return {**counts, **descriptions, "apps": apps, "captures": captures, "passages": pieces}, ids
        raise AssertionError("unreachable")


def _is_conflict(error: object) -> bool:
    """Returns True if another transaction wrote the same data. Errors in the plan's own tables do not count."""
    of_plan = isinstance(error, pg.Error) and (error.diag.table_name or "").startswith(("restored", "incoming"))
    return isinstance(error, pg.UniqueViolation | pg.DeadlockDetected) and not of_plan


async def _copy(tx: Tx, table: str, data: bytes) -> None:
    driver = await driver_of(tx)
    try:
        async with driver.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
            await copy.write(data)
    except pg.Error as error:
        raise exc.DBAPIError.instance(
            None, None, error, pg.Error, hide_parameters=True, connection_invalidated=driver.closed
        ) from error
