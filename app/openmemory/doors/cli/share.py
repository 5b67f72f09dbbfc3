"""`openmemory share`: writes a project's memories to a folder for others, and reads such a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import App, AsApp, Namespace, User
from openmemory.doors.cli.output import CommandAnswer, confirm, plain
from openmemory.errors import SetupError
from openmemory.serialization import exact_json

share = typer.Typer(
    help="Share the memories of a project through a folder of its repository, and read those of others.",
    no_args_is_help=True,
)

_PATH = "/api/v1/bundles"
_FOLDER = "mem-share"
_README = """# Shared memory

What assistants remember of this project. `openmemory share import` adds it to your own memory, and
`openmemory share export` writes it anew. The files have the layout of Mempack's bundles.
"""


@share.command("export")
@connected
async def export(
    client: Client,
    *,
    out: Annotated[str, typer.Option("--out", metavar="FOLDER", help="The folder to write.")] = _FOLDER,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Write the memories, links and state of a project to a folder. Logs, rules and histories are not in it."""
    params = {"user_id": user, "app": app, "namespace": scope.target(namespace)}
    bundle = await client.call("GET", _PATH, params=params)
    _write(Path(out), bundle)
    summary = f"{len(bundle['memories'])} memories and {len(bundle['links'])} links written to {out}."
    return CommandAnswer({"folder": out} | bundle["manifest"], summary)


@share.command("import")
@connected
async def import_(
    client: Client,
    *,
    folder: Annotated[str, typer.Option("--in", metavar="FOLDER", help="The folder to read.")] = _FOLDER,
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete what earlier imports brought and the folder does not have.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask where it is of another project.")] = False,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
) -> CommandAnswer:
    """Add the memories of a folder to a project. A second import of the same folder changes nothing."""
    bundle = _read_bundle(Path(folder))
    into = scope.target(namespace)
    theirs = bundle["manifest"].get("source_namespace") or bundle["manifest"].get("source_git_root") or into
    if theirs != into:
        confirm(f"The folder is of {plain(str(theirs))}. Import it into {into}?", yes)
    body = {"user_id": user, "app": app, "namespace": into, "replace": replace, "bundle": bundle}
    answer = await client.call("POST", _PATH, body=body, patient=True)
    counts = ", ".join(f"{answer[key]} {key}" for key in ("imported", "updated", "unchanged", "deleted", "kept"))
    state = "" if answer["state"] == "none" else f" State {answer['state']}."
    return CommandAnswer(answer, f"{counts}; {answer['links']} new links.{state}")


def _write(folder: Path, bundle: dict[str, Any]) -> None:
    texts = {
        "manifest.json": _pretty(bundle["manifest"]),
        "memories.jsonl": b"".join(_line(one) for one in bundle["memories"]),
        "links.jsonl": b"".join(_line(one) for one in bundle["links"]),
        "README.md": _README.encode(),
    }
    if bundle["state"] is not None:
        texts["state.json"] = _pretty(bundle["state"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if bundle["state"] is None:
            (folder / "state.json").unlink(missing_ok=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    except OSError as error:
        raise SetupError(f"{folder}: {error.strerror or error}") from error


def _read_bundle(folder: Path) -> dict[str, Any]:
    """The bundle in a folder.

    Raises:
        SetupError: the folder is not one, or a file cannot be read.
    """
    manifest = _json(folder / "manifest.json", needed=True)
    if not isinstance(manifest, dict):
        raise SetupError(f"{folder / 'manifest.json'}: must be a JSON object")
    fields = {name: value for name, value in manifest.items() if value is not None}
    bundle = {
        "manifest": fields,
        "memories": _lines(folder / "memories.jsonl"),
        "links": _lines(folder / "links.jsonl"),
    }
    state = _json(folder / "state.json", needed=False)
    return bundle if state is None else bundle | {"state": state}


def _bytes(file: Path, *, needed: bool) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        if needed:
            raise SetupError(f"{file}: there is no such file; `openmemory share export` writes it") from error
        return b""
    except OSError as error:
        raise SetupError(f"{file}: {error.strerror or error}") from error


def _json(file: Path, *, needed: bool) -> Any:
    text = _bytes(file, needed=needed)
    try:
        return exact_json.loads(text) if text.strip() else None
    except ValueError as error:
        raise SetupError(f"{file}: must be JSON: {error}") from error


def _lines(file: Path) -> list[Any]:
    values = []
    for number, line in enumerate(_bytes(file, needed=False).splitlines(), 1):
        if line.strip():
            try:
                values.append(exact_json.loads(line))
            except ValueError as error:
                raise SetupError(f"{file}, line {number}: must be JSON: {error}") from error
    return values


def _line(value: Any) -> bytes:
    return orjson.dumps(value) + b"\n"


def _pretty(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n"
