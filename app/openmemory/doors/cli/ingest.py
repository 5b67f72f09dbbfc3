"""`openmemory ingest`: keeps the texts of a folder in the memory, to be searched by meaning and by words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import App, User
from openmemory.doors.cli.output import CommandAnswer, plain
from openmemory.errors import OpenMemoryError

if TYPE_CHECKING:
    from openmemory.doors.cli.reading import Folder

_FILES_TOGETHER = 100
_TEXT_TOGETHER = 1_000_000
"""Files, and characters of text, in one request."""
_SHOWN = 20
_LATER = 60_000
"""The milliseconds after which a run that failed is repeated, if nothing changes meanwhile."""


@connected
async def ingest(
    client: Client,
    *,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder.")] = Path(),
    user: User = None,
    app: App = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "--project", metavar="NAME", help="The project; default: that of the folder."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would change.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on, and keep what changes, until Ctrl-C.")] = False,
) -> CommandAnswer:
    """Keep the code and the documents of a folder, cut into passages. Run it again after changes.

    Git tells which files are ignored. Files that hold credentials, links and binary files are left out. The namespace
    is that of the project: the first line of .openmemory if `openmemory projects trust` has confirmed it, otherwise the
    path of the Git remote, otherwise the name of the folder.
    """
    whose = {"user_id": user, "app": app, "namespace": namespace}
    answer = await _store(client, path, whose, dry_run=dry_run)
    if watch and not dry_run:
        await _watch(client, path, whose, answer)
    return answer


async def _watch(client: Client, path: Path, whose: dict[str, Any], answer: CommandAnswer) -> None:
    """Keeps what changes in a folder. Ends with the process.

    A failure is reported, and what it left out is sent with the next change or after a while.
    """
    from watchfiles import awatch

    _show(answer)
    again = True  # something may have changed before the watch began
    # Its default filter leaves out what Git and tools write.
    async for changes in awatch(path, rust_timeout=_LATER, yield_on_timeout=True):
        if not changes and not again:
            continue
        try:
            answer = await _store(client, path, whose, dry_run=False)
            again = answer.failed
            _show(answer)
        except OpenMemoryError as error:
            again = True
            print(f"openmemory: {error.message}", file=sys.stderr)


def _show(answer: CommandAnswer) -> None:
    answer.show(json=False)
    sys.stdout.flush()


async def _store(client: Client, path: Path, whose: dict[str, Any], *, dry_run: bool) -> CommandAnswer:
    from openmemory.doors.cli.reading import Folder

    folder = Folder.of(path)
    namespace = scope.here(whose["namespace"], str(folder.root))
    whose = whose | {"namespace": namespace}
    plan = await plan_ingest(client, folder, whose)
    skipped = [f"{count} left out: {reason}." for reason, count in sorted(folder.skipped.items())]
    if dry_run:
        return CommandAnswer(plan | {"namespace": namespace}, *_format_plan(plan), notes=skipped)
    results = await _send(client, folder, whose, plan["wanted"])
    rest = {"renamed": plan["renamed"], "gone": plan["gone"]}
    finished = await client.call("POST", "/api/v1/files/finish", body=whose | rest)
    events = [each.get("event") for each in results]
    failures = [each for each in results if "error" in each]
    redacted = [each for each in results if each.get("redacted")]
    summary = (
        f"{namespace}: {events.count('ADD')} files added, {events.count('UPDATE')} updated, {plan['unchanged']}"
        f" unchanged, {finished['renamed']} renamed, {finished['removed']} removed."
    )
    notes = [f"{plain(each['path'])}: {', '.join(each['redacted'])} redacted." for each in redacted[:_SHOWN]]
    notes += [f"{plain(each['path'])}: {each['note']}" for each in results if each.get("note")][:_SHOWN]
    asides = [f"{plain(each['path'])} was not stored: {plain(each['detail'])}" for each in failures[:_SHOWN]]
    value = {"namespace": namespace, "unchanged": plan["unchanged"], "results": results, **finished}
    return CommandAnswer(value, summary, notes=[*notes, *skipped], asides=asides, failed=bool(failures))


async def plan_ingest(client: Client, folder: Folder, whose: dict[str, Any]) -> dict[str, Any]:
    """Asks which files of a folder an ingest would send, rename and remove."""
    hashes = {one: content[1] for one in folder.files() if (content := folder.read(one)) is not None}
    files = [{"path": one, "hash": hash_} for one, hash_ in hashes.items()]
    plan = await client.call("POST", "/api/v1/files/plan", body=whose | {"below": folder.below, "files": files})
    return dict(plan)


async def _send(client: Client, folder: Any, whose: dict[str, Any], paths: list[str]) -> list[dict[str, Any]]:
    """Sends the texts of the wanted files, and shows how many are left."""
    results: list[dict[str, Any]] = []
    batch: list[dict[str, str]] = []
    size = 0

    async def send(count: int) -> None:
        answer = await client.call("POST", "/api/v1/files/batch", body=whose | {"files": batch}, patient=True)
        for each, file in zip(answer["results"], batch, strict=True):
            results.append({"path": file["path"], **each})
        batch.clear()
        if sys.stderr.isatty():
            print(f"\r{count} of {len(paths)} files", end="" if count < len(paths) else "\n", file=sys.stderr)

    for number, path in enumerate(paths):
        if (content := folder.read(path)) is None:
            continue
        if batch and (len(batch) >= _FILES_TOGETHER or size + len(content[0]) > _TEXT_TOGETHER):
            await send(number)
            size = 0
        batch.append({"path": path, "text": content[0], "hash": content[1]})
        size += len(content[0])
    if batch:
        await send(len(paths))
    return results


def _format_plan(plan: dict[str, Any]) -> list[str]:
    """The lines of a plan."""
    lines = [f"send {plain(path)}" for path in plan["wanted"]]
    lines += [f"rename {plain(each['old'])} to {plain(each['new'])}" for each in plan["renamed"]]
    lines += [f"remove {plain(path)}" for path in plan["gone"]]
    return [*lines, f"{plan['unchanged']} files are unchanged."]
