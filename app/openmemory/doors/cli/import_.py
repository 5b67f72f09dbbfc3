"""`openmemory import`: stores every line of a JSON Lines file, or imports an old installation."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from openmemory.doors.cli.client import service, where_to
from openmemory.doors.cli.options import ConfigFile, DataDir, Json, Url
from openmemory.doors.cli.output import plain
from openmemory.errors import Invalid

if TYPE_CHECKING:
    from openmemory.config.settings import Settings
    from openmemory.doors.cli.migrating import ImportRequest, Report


def import_(
    file: Annotated[
        str, typer.Argument(metavar="FILE|-|PROGRAM", help="JSON Lines, or the program that SOURCE is from.")
    ],
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="A file, folder, URL or database of PROGRAM.")
    ] = None,
    *,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The user of lines that name none; with SOURCE: import only this user."),
    ] = None,
    app: Annotated[str | None, typer.Option(metavar="NAME", help="The app of lines that name none.")] = None,
    into: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With SOURCE: import under this user name, also what names no user."),
    ] = None,
    mode: Annotated[
        Literal["skip", "overwrite"] | None,
        typer.Option(help="With SOURCE: skip or overwrite memories that already exist here; default: skip."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With SOURCE: show what would be imported, and import nothing.")
    ] = False,
    json: Json = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    url: Url = None,
) -> None:
    """Import memories from a file or an old installation.

    openmemory import notes.jsonl

    Each line is an object: {"text": ..., "user": ..., "app": ..., "namespace": ..., "created_at": ...}. Only text is
    required; - is standard input. A text that the same user, app and namespace already have is not stored again, so an
    interrupted import can be repeated. An invalid line is reported with its number, and the import continues; the exit
    code is then 1.

    openmemory import openmemory memories_export.zip | openmemory.db | http://localhost:8765

    Imports an OpenMemory installation: its export, its database, or its running server. Ids, states, times, categories,
    history, logs and rules are kept. A server exports one user: --user, or the default user.

    openmemory import mem0 http://localhost:6333/COLLECTION | memories.json

    Imports mem0 without OpenMemory: its collection in Qdrant, or its memories as JSON.

    openmemory import pimemento memory_data

    openmemory import mempack ~/.local/share/mempack

    Imports what these programs keep in a folder. Projects, threads, states, links and files come along.

    openmemory import PROGRAM postgresql://USER@HOST:PORT/DATABASE

    Imports the database of openmemory, pimemento, devmemory or neuromem, which is only read. Its password may come from
    PGPASSWORD. Every import reports what it left out and why, and can be repeated: nothing is imported twice.
    """
    import asyncio

    if source is None:
        if into is not None or mode is not None or dry_run:
            raise Invalid("--into, --mode and --dry-run", "need a SOURCE: `openmemory import PROGRAM SOURCE`")
        asyncio.run(_lines(where_to(config, data_dir, url), url, file, user=user, app=app, json=json))
        return
    from openmemory.doors.cli.migrating import KINDS, ImportRequest

    if file not in KINDS:
        raise Invalid("import", f"the first argument before a SOURCE must be one of {', '.join(KINDS)}, not {file!r}")
    if app is not None:
        raise Invalid("--app", "is for JSON Lines; memories of an old installation keep their apps")
    kind = next(one for one in KINDS if one == file)
    request = ImportRequest(kind, source, user, into, mode or "skip", dry_run)
    asyncio.run(_old(where_to(config, data_dir, url), url, request, json=json))


async def _lines(
    settings: Settings, url: str | None, file: str, *, user: str | None, app: str | None, json: bool
) -> None:
    from openmemory.doors.cli.importing import Import

    async with service(settings, url) as client:
        run = Import(client, user=user, app=app)
        try:
            await run.file(file)
        finally:
            run.answer().show(json=json)
        run.answer().exit()


async def _old(settings: Settings, url: str | None, request: ImportRequest, *, json: bool) -> None:
    from openmemory.doors.cli.migrating import Migration
    from openmemory.doors.cli.migration_report import answer

    # A dry run needs no service.
    async with nullcontext() if request.dry_run else service(settings, url) as client:
        default = settings.access.default_user if client is None else await client.user(None)
        migration = Migration(request, default, client)
        try:
            await migration.run()
        except BaseException:
            # Users imported before an error stay imported, so they are reported too.
            if migration.report.users:
                answer(migration.report).show(json=json)
            raise
        _tell_default(migration.report, default)
        answer(migration.report).show(json=json)
        answer(migration.report).exit()


def _tell_default(report: Report, default_user: str) -> None:
    """Adds a note on how the old web page can show the only user, because its list of apps names none."""
    if not report.dry_run and len(report.users) == 1 and (name := report.users[0].into) != default_user:
        line = plain(f"OPENMEMORY_ACCESS_DEFAULT_USER={shlex.quote(name)}")
        report.notes.append(
            f"The default user is {plain(default_user)}. For the old web page start the service with {line}"
        )
