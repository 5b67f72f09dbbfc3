"""Imports a file: an archive, or the data of another program. Its content determines its kind."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from openmemory.access.directory import Directory
from openmemory.backup.format import UNPACKED, most_of
from openmemory.backup.report import ImportReport
from openmemory.backup.service import Backup, Mode
from openmemory.config.settings import LimitSettings
from openmemory.embedded.folder import temporary
from openmemory.errors import Invalid, OpenMemoryError
from openmemory.identity.caller import Caller
from openmemory.importers import mem0, sqlite_file
from openmemory.importers.archive import ArchiveCounts, UserArchive
from openmemory.importers.exported import contents_of
from openmemory.importers.left_out import SkippedRows
from openmemory.importers.source import BadSource, FileKind, ReadingLimit, kind_of
from openmemory.importers.staging import Staging
from openmemory.memories import validation
from openmemory.schema.archives import APPS
from openmemory.uploads.admission import Admission
from openmemory.uploads.spool import Spool, look_for_room, no_room

MAX_USERS = 1_000
"""Maximum number of users of a file."""

_AT_ONCE = 2
"""Files that a process reads at a time."""
_PATIENCE = 30.0
"""Seconds that a further file waits for its turn."""
_READING = 60.0
_PACE = 500_000
"""Reading a file may take `_READING` seconds, plus one second for every `_PACE` bytes."""


@dataclass(frozen=True, slots=True)
class FileImport:
    """The options of an import.

    `user`: only this user of the file; None: all of them. `into`: the user here who gets the memories; None: the
    caller gets those of a single user, and those of several users go to users of the same names.
    """

    user: str | None = None
    into: str | None = None
    mode: Mode = "skip"
    dry_run: bool = False


@dataclass(slots=True)
class ImportedUser:
    """The result for one user of the file. `report` is None if the import of this user failed; `error` states why."""

    user: str
    into: str
    found: ArchiveCounts
    report: ImportReport | None = None
    error: str | None = None


@dataclass(slots=True)
class FileReport:
    """The result for a file. `users`: the number of memories of every user in it, by name. If it has several users and
    the caller must choose one, nothing is `imported`."""

    kind: FileKind
    users: dict[str, int]
    imported: list[ImportedUser] = field(default_factory=list)
    left_out: SkippedRows = field(default_factory=SkippedRows)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a file of the kind `kind`, and the limit within which they are read."""

    kind: FileKind
    staging: Staging
    limit: ReadingLimit


class Imports:
    """Imports files. Each user in a file is imported as a whole or not at all."""

    def __init__(self, backup: Backup, directory: Directory, *, folder: Path, limits: LimitSettings) -> None:
        self._backup = backup
        self._directory = directory
        self._folder = folder
        self._limits = limits
        self._turns = Admission(_AT_ONCE, _PATIENCE)

    async def import_file(self, caller: Caller, file: Spool, options: FileImport) -> FileReport:
        """Imports a file, and closes it. The caller gets the memories of mem0 that name no user.

        A credential of one user imports for this user only. `dry_run` reports what would happen, and keeps nothing.

        Raises:
            Forbidden: the caller is an app, or its credential may not write all of the user's data, or is of another
                user.
            Invalid: the file cannot be imported, or has no such user.
            BadArchive: the file is a broken zip, or an inconsistent archive.
            Unavailable: PostgreSQL is unavailable, the disk is full, or too many files are being imported.
        """
        try:
            self._backup.may_import(caller)
            if not file.seek(0, 2):
                raise Invalid("file", "must not be empty")
            async with self._turns.turn(caller.principal.id):
                kind = await asyncio.to_thread(kind_of, file.file)
                if kind is FileKind.ARCHIVE:
                    return await self._archive(caller, file, options)
                async with self._staged_rows(caller, kind, file) as rows:
                    return await self._users(caller, rows, options)
        except BadSource as error:
            raise Invalid("file", error.message, code=error.code, hint=error.hint) from error
        finally:
            file.close()

    async def _archive(self, caller: Caller, file: Spool, options: FileImport) -> FileReport:
        limit = self._limit_of(file)
        unpacked, most = UNPACKED * self._limits.backup, most_of(self._limits)
        name, counts = await limit.run(lambda: contents_of(file.file, unpacked=unpacked, most=most, limit=limit))
        user = name or caller.user
        _single_user([user], options)
        imported_user = ImportedUser(user, options.into or caller.user, counts)
        into = await self._caller_into(caller, imported_user.into, dry_run=options.dry_run)
        imported_user.report = await self._backup.restore(into, file, options.mode, dry_run=options.dry_run)
        return FileReport(FileKind.ARCHIVE, {user: sum(counts.memories.values())}, [imported_user])

    @asynccontextmanager
    async def _staged_rows(self, caller: Caller, kind: FileKind, file: Spool) -> AsyncIterator[_Rows]:
        """The rows of a file that is no archive, in a temporary folder."""
        limit = self._limit_of(file)
        folder = Path(tempfile.mkdtemp(dir=temporary(self._folder), prefix="import-"))
        try:
            staging = await limit.run(lambda: self._read(caller.user, kind, file, folder, limit))
            try:
                yield _Rows(kind, staging, limit)
            finally:
                staging.close()
        finally:
            await asyncio.to_thread(shutil.rmtree, folder)

    def _read(self, user: str, kind: FileKind, file: Spool, folder: Path, limit: ReadingLimit) -> Staging:
        """Stages a file, and closes it."""
        staging = Staging(folder, limit, most=UNPACKED * self._limits.backup)
        try:
            if kind is FileKind.DATABASE:
                path = folder / "openmemory.db"  # SQLite needs a name
                _copy(file, path, self._folder)
                file.close()
                sqlite_file.stage(path, staging, folder, lambda _count, _total: None, limit)
            else:
                file.seek(0)
                mem0.stage_json(file.file, mem0.Mem0(staging, user=user))
            staging.settle()
            _check_counts(staging)
        except BaseException:
            staging.close()
            raise
        return staging

    async def _users(self, caller: Caller, rows: _Rows, options: FileImport) -> FileReport:
        staging, limit = rows.staging, rows.limit
        report = FileReport(rows.kind, await limit.run(staging.sizes))
        user = _single_user(list(report.users), options)
        if user is None and caller.principal.user is not None:
            # Everybody's memories cannot be imported with the credential of one user.
            if caller.user not in report.users:
                if not options.dry_run:
                    raise Invalid("of", f"must name one of the file's users: {_user_list(report.users)}")
                return report
            user = caller.user
        users = [(id_, name) for id_, name in await limit.run(staging.users) if user in (None, name)]
        user_id = None if user is None else users[0][0]
        report.left_out = await limit.run(lambda: staging.skipped_rows(user_id))
        report.notes = staging.notes(user_id)
        targets = [name if user is None else options.into or caller.user for _, name in users]
        for name in targets:  # before anything is imported
            caller.principal.claimed_user(name)
        for (id_, name), into in zip(users, targets, strict=True):
            imported_user = ImportedUser(name, into, ArchiveCounts())
            report.imported.append(imported_user)
            try:
                await self._one(caller, rows, id_, imported_user, options)
            except OpenMemoryError as error:
                # Other users may be imported already. The error is therefore part of the report.
                imported_user.error = error.message if error.hint is None else f"{error.message} {error.hint}"
        return report

    async def _one(
        self, caller: Caller, rows: _Rows, id_: str, imported_user: ImportedUser, options: FileImport
    ) -> None:
        limit = rows.limit
        archive = await limit.run(lambda: UserArchive(rows.staging, id_))
        imported_user.found = await limit.run(archive.contents)
        into = await self._caller_into(caller, imported_user.into, dry_run=options.dry_run)
        spool = Spool(self._folder)
        try:
            await limit.run(lambda: archive.write(spool, lambda _count, _total: None))
            imported_user.report = await self._backup.restore(into, spool, options.mode, dry_run=options.dry_run)
        finally:
            spool.close()

    async def _caller_into(self, caller: Caller, name: str, *, dry_run: bool) -> Caller:
        """Returns the user who gets the memories. A new user is made, unless it is a dry run."""
        name = validation.name(name, "into", self._limits)
        if dry_run:
            return await self._directory.owner_or_new(caller.principal, name)
        return await self._directory.owner(caller.principal, name, make=True)

    def _limit_of(self, file: Spool) -> ReadingLimit:
        return ReadingLimit(_READING + file.seek(0, 2) / _PACE, self._folder)


def _single_user(users: list[str], options: FileImport) -> str | None:
    """Returns the only user who is imported; None if all are."""
    if not users:
        raise BadSource("holds no memories")
    if options.user is not None and options.user not in users:
        raise Invalid("of", f"must be a user of the file, not {options.user!r}; it has {_user_list(users)}")
    if options.user is None and len(users) > 1:
        if options.into is not None:
            raise Invalid("into", f"is for one user, but the file has {len(users):,}; choose one of them")
        return None
    return options.user or users[0]


def _user_list(users: Iterable[str]) -> str:
    return ", ".join(list(users)[:20])


def _check_counts(staging: Staging) -> None:
    """Rejects a file with more users or apps than are held in memory."""
    for table, most in (("users", MAX_USERS), ("apps", APPS.most)):
        [row] = staging.rows(f"SELECT count(*) FROM {table}")  # noqa: S608 - only constants are put in
        if row[0] > most:
            raise BadSource(
                f"has {row[0]:,} {table}; at most {most:,} are imported here",
                hint="`openmemory import` takes any number",
            )


def _copy(file: Spool, path: Path, folder: Path) -> None:
    size = file.seek(0, 2)
    file.seek(0)
    look_for_room(folder, size)
    try:
        with path.open("wb") as to:
            shutil.copyfileobj(file.file, to, 1024 * 1024)
    except OSError as error:
        raise no_room(error.strerror or "it cannot be written") from error
