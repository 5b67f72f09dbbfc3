"""`openmemory documents`: stores, lists, searches, reads and deletes documents, such as PDFs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import orjson
import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.ids import document_id, whole
from openmemory.doors.cli.operations import add as add_operation
from openmemory.doors.cli.options import About, AllProjects, App, AsApp, Namespace, PageNumber, Query, Rows, User, words
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, passages, plain, plain_lines
from openmemory.doors.cli.passages import list_passages, under_heading
from openmemory.errors import Invalid, OpenMemoryError, SetupError
from openmemory.operations.documents import PATH, list_documents

documents = typer.Typer(no_args_is_help=True)

Document = Annotated[str, typer.Argument(metavar="ID", help="The document's id, or its first characters.")]
_TYPE = "application/octet-stream"


@documents.command()
@connected
async def add(
    client: Client,
    *,
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="PDF, Word (docx), HTML or text.")],
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    about: About = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Another name than that of the file.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="What the document is about.")] = None,
    keep: Annotated[bool | None, typer.Option("--keep/--no-keep", help="Keep the original, or only its text.")] = None,
    ttl_days: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=36_500, help="The document expires after N days.")
    ] = None,
) -> CommandAnswer:
    """Store documents. One of the same name is replaced."""
    if name is not None and len(files) > 1:
        raise SetupError("--name is for one file, and there are several")
    where = scope.target(namespace, about)
    values = {"user_id": user, "app": app, "namespace": where, "name": name, "title": title}
    fields = {key: value for key, value in values.items() if value is not None}
    if ttl_days is not None:
        fields["ttl_days"] = str(ttl_days)
    if keep is not None:
        fields["keep"] = "true" if keep else "false"
    results, lines, notes, asides = list[dict[str, Any]](), list[str](), list[str](), list[str]()
    for path in files:
        try:
            result = await _send(client, path, fields)
        except (OpenMemoryError, OSError) as error:
            if len(files) == 1 and isinstance(error, OpenMemoryError):
                raise
            problem = error.strerror if isinstance(error, OSError) else str(error)
            results.append({"file": str(path), "error": problem})
            asides.append(f"{plain(str(path))} was not stored: {plain(str(problem))}")
            continue
        results.append(result)
        lines.append(_format_result(result))
        if result.get("redacted"):
            notes.append(f"{plain(result['name'])}: {', '.join(result['redacted'])} redacted in the text.")
        if result.get("note"):
            notes.append(f"{plain(result['name'])}: {result['note']}")
    return CommandAnswer({"results": results}, *lines, notes=notes, asides=asides, failed=bool(asides))


async def _send(client: Client, path: Path, fields: dict[str, str]) -> dict[str, Any]:
    with path.open("rb") as file:
        files = {"file": (path.name, file, _TYPE)}
        async with client.stream("POST", PATH, data=fields, files=files) as answer:
            result: dict[str, Any] = orjson.loads(await answer.aread())
    return result


def _format_result(result: dict[str, Any]) -> str:
    what = {"ADD": "added", "UPDATE": "updated", "NONE": "is unchanged"}[result["event"]]
    original = "" if result["kept"] else ", without the original"
    return f"{plain(result['name'])} {what}: {passages(result['passages'])}{original}. {result['id']}"


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (one["id"], one["name"], one["bytes"], one["passages"], one["namespace"], one["app_name"])
        for one in answer["items"]
    ]
    table = Table(["id", "name", "bytes", "passages", "namespace", "app"], rows, wide="name")
    return page_answer(answer, table, arguments["page"], "There are no documents.")


add_operation(documents, list_documents, _format_list)


@documents.command()
@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Only documents whose name begins so.")] = None,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find passages of documents by meaning and by words, best match first."""
    body = {
        "user_id": user, "app": app, "query": words(query), "limit": limit, "path": name, "kinds": ["document"],
        "namespaces": scope.read(namespace, all_projects=all_projects),
    }  # fmt: skip
    return await list_passages(client, body, ["document", "stored", "passage"], _hit)


def _hit(hit: dict[str, Any]) -> tuple[str, ...]:
    return plain(hit["path"]), local_time(hit["created_at"]), under_heading(hit)


@documents.command()
@connected
async def show(
    client: Client, *, document: Document, user: User = None, app: AsApp = None, page: PageNumber = 1
) -> CommandAnswer:
    """Show the text of a document."""
    params = {"user_id": user, "app": app, "page": page, "size": 50}
    document = await document_id(client, document, {"user_id": user, "app": app})
    answer = await client.call("GET", f"{PATH}/{document}", params=params)
    lines = [f"{plain(answer['document']['name'])}, {passages(answer['total'])}"]
    for one in answer["items"]:
        lines += ["", *([f"[{plain(one['heading'])}]"] if one["heading"] else []), *plain_lines(one["content"])]
    notes = [f"Page {page}; {answer['total']} passages in all."] if len(answer["items"]) < answer["total"] else []
    return CommandAnswer(answer, *lines, notes=notes)


@documents.command()
@connected
async def download(
    client: Client,
    *,
    document: Document,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where it is written. An existing file is kept.")],
    user: User = None,
    app: AsApp = None,
) -> CommandAnswer:
    """Write the original of a document to a file."""
    params = {name: value for name, value in (("user_id", user), ("app", app)) if value is not None}
    document = await document_id(client, document, params)
    try:
        with file.open("xb") as out:
            try:
                async with client.stream("GET", f"{PATH}/{document}/original", params=params) as answer:
                    async for chunk in answer.aiter_bytes():
                        out.write(chunk)
            except BaseException:
                file.unlink()
                raise
    except FileExistsError:
        raise SetupError(f"{file} exists already") from None
    except OSError as error:
        raise SetupError(f"{file}: {error.strerror or error}") from error
    return CommandAnswer({"file": str(file), "bytes": file.stat().st_size}, f"{plain(str(file))} is written.")


@documents.command()
@connected
async def delete(
    client: Client,
    *,
    document: Document,
    user: User = None,
    app: AsApp = None,
    erase: Annotated[bool, typer.Option("--erase", help="Remove it for good, with its original.")] = False,
) -> CommandAnswer:
    """Delete a document. `restore` brings it back, unless it was erased."""
    document = await document_id(client, document, {"user_id": user, "app": app})
    path = f"{PATH}/{document}"
    if erase:
        answer = await client.call("POST", f"{path}/erase", body={"user_id": user, "app": app})
    else:
        answer = await client.call("DELETE", path, params={"user_id": user, "app": app})
    return CommandAnswer(answer, f"{'Erased' if erase else 'Deleted'} {document}: {passages(answer['passages'])}.")


@documents.command()
@connected
async def restore(
    client: Client,
    *,
    document: Annotated[str, typer.Argument(metavar="ID", help="The whole id, as `delete` has printed it.")],
    user: User = None,
) -> CommandAnswer:
    """Bring a deleted document back."""
    if whole(document) is None:
        raise Invalid("ID", "must be a whole UUID, because deleted documents are in no list")
    answer = await client.call("POST", f"{PATH}/{document}/restore", body={"user_id": user})
    return CommandAnswer(answer, f"Restored: {passages(answer['passages'])}.")
