"""`openmemory import`: stores every line of a JSON Lines file, or imports an old installation."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from openmemory.cli.client import Client, service, where_to
from openmemory.cli.options import App, ConfigFile, DataDir, Json, Url, User
from openmemory.errors import Invalid

if TYPE_CHECKING:
    from openmemory.config.settings import Settings
    from openmemory.importers.run import ImportRequest, Report

_OLD = ("openmemory", "mem0")


def import_(
    file: Annotated[str, typer.Argument(metavar="FILE|-|openmemory|mem0", help="JSON Lines, or what SOURCE is of.")],
    source: Annotated[
        str | None, typer.Argument(metavar="[SOURCE]", help="Of an old installation: a file or a URL.")
    ] = None,
    *,
    user: User = None,
    app: App = None,
    into: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of an old installation: take them in as this user.")
    ] = None,
    mode: Annotated[
        Literal["skip", "overwrite"] | None,
        typer.Option(help="Of an old installation: what to do with memories that are here already; default: skip."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Of an old installation: say what would be taken, and take nothing.")
    ] = False,
    json: Json = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
    url: Url = None,
) -> None:
    """Remember every line of a file, or bring an old installation over.

    openmemory import notes.jsonl

    Every line is {"text": ..., "user": ..., "app": ..., "namespace": ..., "created_at": ...}; - is standard input.
    Lines that name no user or app are --user's and --app's. A text that the same user, app and namespace remember
    already is not stored twice, so an import that was interrupted is simply run again. A line that cannot be taken
    is reported with its number, and the rest goes on; the exit code is then 1.

    openmemory import openmemory memories_export.zip | openmemory.db | http://localhost:8765

    Takes over what mem0's OpenMemory kept: its export, its database, or the server itself while it runs. Ids, states,
    times, categories, history, logs and rules stay as they are. --user chooses one user; of a server it is the default
    user otherwise.

    openmemory import mem0 http://localhost:6333/COLLECTION | memories.json

    The same for mem0 without OpenMemory: its collection in Qdrant, or its memories as JSON.
    """
    import asyncio

    if source is None:
        if into is not None or mode is not None or dry_run:
            raise Invalid("--into, --mode and --dry-run", f"are for `openmemory import {'|'.join(_OLD)} SOURCE`")
        settings = where_to(config, data_dir, url)
        asyncio.run(_lines(settings, url, file, user=user, app=app, json=json))
        return
    from openmemory.importers.run import ImportRequest

    if file not in _OLD:
        raise Invalid("import", f"of two words the first must be {' or '.join(_OLD)}, not {file!r}")
    if app is not None:
        raise Invalid("--app", "is for JSON Lines; memories of an old installation stay with their apps")
    settings = where_to(config, data_dir, url)
    wanted = ImportRequest("mem0" if file == "mem0" else "openmemory", source, user, into, mode or "skip", dry_run)
    asyncio.run(_old(settings, url, wanted, json=json))


async def _lines(
    settings: Settings, url: str | None, file: str, *, user: str | None, app: str | None, json: bool
) -> None:
    async with service(settings, url) as client:
        await _remember(client, file, user=user, app=app, json=json)


async def _remember(client: Client, file: str, *, user: str | None, app: str | None, json: bool) -> None:
    from openmemory.cli.importing import Import
    from openmemory.cli.output import as_json

    run = Import(client, user=user, app=app)
    try:
        await run.file(file)
    finally:
        if json:
            as_json(
                {
                    "added": run.added,
                    "already_there": run.already,
                    "deleted_left_out": run.left_out,
                    "failed": run.failed,
                }
            )
        else:
            left_out = f"{run.left_out} deleted ones left out, " if run.left_out else ""
            print(f"{run.added} added, {run.already} already there, {left_out}{run.failed} failed.")
    if run.failed:
        raise typer.Exit(1)


def _tell_default(report: Report, default_user: str) -> None:
    """Adds a note on how the old web page can show the only user, because its list of apps names none."""
    from openmemory.cli.output import plain

    if not report.dry_run and len(report.users) == 1 and (name := report.users[0].into) != default_user:
        line = plain(f"OPENMEMORY_ACCESS_DEFAULT_USER={shlex.quote(name)}")
        report.notes.append(
            f"The default user is {plain(default_user)}. For the old web page start the service with {line}"
        )


async def _old(settings: Settings, url: str | None, wanted: ImportRequest, *, json: bool) -> None:
    from openmemory.importers.report import show
    from openmemory.importers.run import Migration

    async def go(client: Client | None) -> Migration:
        migration = Migration(wanted, settings.access.default_user, client)
        try:
            await migration.run()
            _tell_default(migration.report, settings.access.default_user)
        finally:
            # Users imported before an error stay imported, so they are reported too.
            if migration.report.users:
                show(migration.report, json=json)
        return migration

    if wanted.dry_run:
        done = await go(None)  # the service need not run
    else:
        async with service(settings, url) as client:
            done = await go(client)
    if not done.report.users:
        show(done.report, json=json)
    if not done.report.whole:
        raise typer.Exit(1)
