"""Imports an old installation, user by user: detects the source, writes archives, sends them, and reports."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from openmemory.backup.format import TABLES
from openmemory.doors.cli.client import Client
from openmemory.doors.cli.output import progress
from openmemory.doors.cli.project import namespace, without_credentials
from openmemory.doors.cli.sending import send
from openmemory.errors import Invalid, OpenMemoryError, SetupError, Unavailable
from openmemory.importers import (
    devmemory,
    exported,
    installation,
    mem0,
    mempack,
    neuromem,
    old_server,
    pimemento,
    postgres,
    qdrant,
    sqlite_file,
)
from openmemory.importers.archive import ArchiveCounts, UserArchive
from openmemory.importers.databases import Show
from openmemory.importers.filling import Filling
from openmemory.importers.foreign import foreign_json, foreign_text, foreign_zip
from openmemory.importers.left_out import SkippedRows
from openmemory.importers.source import BadSource, is_sqlite, is_zip, refuse_foreign
from openmemory.importers.staging import Staging

Kind = Literal["openmemory", "mem0", "mempack", "pimemento", "devmemory", "neuromem"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""The programs whose data is imported."""

_DATABASES = {"devmemory": devmemory.stage, "neuromem": neuromem.stage, "pimemento": pimemento.stage}
"""The readers of the databases in PostgreSQL, by program."""
_ONLY_DATABASES = ("devmemory", "neuromem")

_MAX_EXPORT_BYTES = 16 * 1024 * 1024 * 1024
"""Maximum size in bytes of an export fetched from an old server."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The requested import. `user`: import only this user of the source; `into`: import under another user name, which
    is also that of what names no user."""

    kind: Kind
    source: str
    user: str | None = None
    into: str | None = None
    mode: str = "skip"
    dry_run: bool = False


@dataclass(slots=True)
class ImportOutcome:
    """The result for one user. `service` is the service's report; None if nothing was sent or the service refused."""

    user: str
    into: str
    found: ArchiveCounts
    service: dict[str, Any] | None = None
    error: str | None = None


@dataclass(slots=True)
class Report:
    """The imported data, by user, and the data that was left out."""

    source: str
    dry_run: bool
    users: list[ImportOutcome] = field(default_factory=list)
    left_out: SkippedRows = field(default_factory=SkippedRows)
    notes: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """True if nothing was left out."""
        behind = any(outcome.error is not None or _left_out(outcome.service) for outcome in self.users)
        return not (behind or self.left_out.total)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        left_out = self.left_out.view.model_dump()
        return {
            "source": self.source, "dry_run": self.dry_run, "users": [asdict(outcome) for outcome in self.users],
            "mended": left_out.pop("mended"), "left_out": left_out, "notes": self.notes,
        }  # fmt: skip


class Migration:
    """One run. `client` connects to the importing service; a dry run has none."""

    def __init__(self, request: ImportRequest, default_user: str, client: Client | None) -> None:
        self._request = request
        self._default = default_user
        self._client = client
        is_database = postgres.is_database(request.source)
        format_address = postgres.address_without_credentials if is_database else without_credentials
        self.report = Report(format_address(request.source), request.dry_run)

    async def run(self) -> None:
        """Imports everything.

        Raises:
            Invalid: the source is not of a known kind.
            SetupError: the source cannot be read, or there is no temporary folder.
            NotFound: the source has no such user.
            Unavailable: a server does not answer. Users sent before stay imported; the same command continues.
        """
        with _temporary() as folder:
            if postgres.is_database(self._request.source):
                await self._postgres(folder)
            elif self._request.kind == "mem0":
                await self._mem0(folder)
            elif self._request.kind != "openmemory":
                await self._stores(folder)
            elif _is_address(self._request.source):
                await self._old_server(folder)
            else:
                await self._file(folder)

    async def _file(self, folder: Path) -> None:
        path = await asyncio.to_thread(_readable, self._request.source)
        start = await asyncio.to_thread(_start, path)
        if is_sqlite(start):
            async with self._stage(folder) as staging:
                with progress("rows read") as show, _prefix_errors(path):
                    await asyncio.to_thread(sqlite_file.stage, path, staging, folder, show)
            return
        with _prefix_errors(path):
            await asyncio.to_thread(_refuse_foreign, path)
        if is_zip(start):
            await self._zip(path, self._request.user)
            return
        raise SetupError(
            f"{path}: must be an export of OpenMemory (.zip) or its database (openmemory.db)",
            hint="use `openmemory import FILE` for JSON Lines, and `openmemory import mem0 FILE` for JSON of mem0",
        )

    async def _zip(self, path: Path, user: str | None) -> None:
        try:
            of, counts = await asyncio.to_thread(_contents, path)
        except OpenMemoryError as error:
            raise SetupError(f"{path.name}: {error.message}") from error
        name = user or of or self._default
        await self._send(ImportOutcome(name, self._request.into or name, counts), path)

    async def _old_server(self, folder: Path) -> None:
        url = self._request.source.rstrip("/")
        user = self._request.user or self._default
        exported_to = await old_server.export(url, user, folder, most=_MAX_EXPORT_BYTES)
        if await asyncio.to_thread(exported.has_accesses, exported_to):
            await self._zip(exported_to, user)  # one of our own servers: the export is complete
            return
        with progress("memories' access logs read") as show:
            whole = await old_server.with_accesses(url, exported_to, folder, self.report.left_out, show)
        await self._zip(whole, user)

    async def _mem0(self, folder: Path) -> None:
        source = self._request.source
        path = None if _is_address(source) else await asyncio.to_thread(_readable, source, folder_too=True)
        if path is not None and path.is_dir():
            raise SetupError(
                f"{path}: must not be a folder; Qdrant's local mode stores pickled Python objects, which can run code",
                hint="export it with mem0 itself, as docs/migrating-from-openmemory.md shows",
            )
        async with self._stage(folder) as staging:
            took = mem0.Mem0(staging, user=self._request.into or self._default)
            with progress("memories read") as show:
                if path is None:
                    await qdrant.stage(source, took, show)
                else:
                    with path.open("rb") as file, _prefix_errors(path):
                        await asyncio.to_thread(_refuse_foreign, path)
                        await asyncio.to_thread(mem0.stage_json, file, took)

    async def _postgres(self, folder: Path) -> None:
        kind, source = self._request.kind, self._request.source
        if kind not in ("openmemory", *_DATABASES):
            raise Invalid("source", f"must not be a database in PostgreSQL; {kind} has none that is read")
        async with self._stage(folder) as staging:
            with progress("rows read") as show, _prefix_errors(self.report.source):
                await asyncio.to_thread(_stage_database, kind, source, staging, self._filling(staging), show)

    async def _stores(self, folder: Path) -> None:
        kind = self._request.kind
        if kind in _ONLY_DATABASES:
            raise Invalid("source", f"must be the database of {kind}: postgresql://USER@HOST:PORT/DATABASE")
        path = await asyncio.to_thread(_readable, self._request.source, folder_too=True)
        async with self._stage(folder) as staging:
            filling = self._filling(staging)
            with progress("read") as show, _prefix_errors(path):
                if kind == "mempack":
                    await asyncio.to_thread(mempack.stage, path, filling, folder, show, _project)
                else:
                    await asyncio.to_thread(pimemento.stage_folder, path, filling, show)

    def _filling(self, staging: Staging) -> Filling:
        return Filling(staging, self._request.kind, user=self._request.into or self._default)

    @asynccontextmanager
    async def _stage(self, folder: Path) -> AsyncIterator[Staging]:
        """A staging to fill while the block runs. Afterwards its contents are sent."""
        staging = Staging(folder)
        try:
            yield staging
            await asyncio.to_thread(staging.settle)
            await self._send_all(staging, folder)
        finally:
            staging.close()

    async def _send_all(self, staging: Staging, folder: Path) -> None:
        users = await asyncio.to_thread(staging.users)
        if self._request.user is not None:
            names = [name for _, name in users]
            users = [(id_, name) for id_, name in users if name == self._request.user]
            if not users:
                there = ", ".join(names[:20]) or "nobody"
                raise Invalid("--user", f"must be a user of the source, not {self._request.user!r}; it has {there}")
        user_id = None if self._request.user is None else users[0][0]
        self.report.left_out = await asyncio.to_thread(staging.skipped_rows, user_id)
        self.report.notes = staging.notes(user_id)
        if self._request.into is not None and len(users) > 1:
            raise Invalid("--into", f"is for one user, but the source has {len(users)}; select one with --user")
        for id_, name in users:
            archive = await asyncio.to_thread(UserArchive, staging, id_)
            outcome = ImportOutcome(name, self._request.into or name, await asyncio.to_thread(archive.contents))
            if self._request.dry_run:
                self.report.users.append(outcome)
                continue
            path = folder / "archive.zip"
            with progress(f"memories of {name} packed") as show:
                await asyncio.to_thread(archive.write, path, show)
            await self._send(outcome, path)
            await asyncio.to_thread(path.unlink)

    async def _send(self, outcome: ImportOutcome, path: Path) -> None:
        self.report.users.append(outcome)
        if self._client is None:
            return
        with progress(f"of {outcome.into} imported") as show:
            try:
                outcome.service = await send(self._client, path, outcome.into, self._request.mode, show)
            except Unavailable:
                raise
            except OpenMemoryError as error:
                # The service rejected this user's whole archive. The import continues with the other users.
                outcome.error = error.message if error.hint is None else f"{error.message} {error.hint}"
                return


def _stage_database(kind: str, source: str, staging: Staging, filling: Filling, show: Show) -> None:
    with postgres.opened(source) as database:
        if kind in _DATABASES:
            _DATABASES[kind](database, filling, show)
        else:
            installation.stage(database, staging, show)


def _project(root: str) -> str | None:
    """The namespace of the project in a folder of this machine. None if there is no such folder."""
    try:
        return namespace(root) if Path(root).is_absolute() and Path(root).is_dir() else None
    except OSError:  # the path is too long, or may not be looked at
        return None


@contextmanager
def _temporary() -> Iterator[Path]:
    try:
        directory = tempfile.TemporaryDirectory(prefix="openmemory-import-")
    except FileNotFoundError:
        raise SetupError(
            "An import needs a temporary folder, and none can be written",
            hint="set TMPDIR to a folder with enough space for the whole installation",
        ) from None
    with directory as name:
        yield Path(name)


def _left_out(service: dict[str, Any] | None) -> bool:
    """Returns True if the service left something out. An exact duplicate was not left out: it is stored, archived."""
    report = service or {}
    return bool(report.get("left_out") or report.get("memories", {}).get("left_out"))


def _is_address(source: str) -> bool:
    return urlsplit(source).scheme in ("http", "https")


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(16)


def _refuse_foreign(path: Path) -> None:
    """Refuses a file of another program, and says what can be done with it.

    Raises:
        BadSource: it is one.
    """
    with path.open("rb") as file:
        start = file.read(_START)
        refuse_foreign(foreign_zip(file, TABLES) if is_zip(start) else foreign_json(start) or foreign_text(start))


_START = 64 * 1024


def _contents(path: Path) -> tuple[str, ArchiveCounts]:
    with path.open("rb") as file:
        return exported.contents_of(file)


@contextmanager
def _prefix_errors(path: Path | str) -> Iterator[None]:
    """Puts the name of the source in front of what is wrong with it."""
    try:
        yield
    except BadSource as error:
        raise SetupError(f"{path}: {error.message}", hint=error.hint) from error


def _readable(source: str, *, folder_too: bool = False) -> Path:
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            if folder_too:
                return path
            raise SetupError(f"{source}: must be a file, not a folder", hint="give the openmemory.db in it")
        with path.open("rb"):
            return path
    except OSError as error:
        # Perhaps an address that was misspelled.
        raise SetupError(f"{without_credentials(source)}: {error.strerror}") from None
