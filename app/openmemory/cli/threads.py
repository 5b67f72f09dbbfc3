"""`openmemory threads`: stores, searches, reads and deletes conversations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.cli import scope
from openmemory.cli.client import Client, connected, path_part
from openmemory.cli.options import (
    About,
    AllProjects,
    App,
    AsApp,
    Namespace,
    PageNumber,
    Query,
    Rows,
    Since,
    Until,
    User,
    words,
)
from openmemory.cli.output import CommandAnswer, Table, confirm, local_time, page_answer, plain, read_stdin
from openmemory.cli.passages import found_passages
from openmemory.errors import Invalid

threads = typer.Typer(help="Store, search, read and delete conversations.", no_args_is_help=True)

ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]

_PATH = "/api/v1/threads"
_TOGETHER = 500
"""Messages in one request."""


def _of(thread: str, part: str = "") -> str:
    return f"{_PATH}/{path_part(thread)}{part}"


@threads.command("list")
@connected
async def list_threads(
    client: Client,
    *,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    limit: Rows = 50,
    page: PageNumber = 1,
) -> CommandAnswer:
    """List conversations, the last used first."""
    where = scope.read(namespace, all_projects=all_projects)
    params = {"user_id": user, "app": app, "namespace": where, "size": limit, "page": page}
    found = await client.call("GET", _PATH, params=params)
    rows = [
        (
            item["thread_id"],
            local_time(item["updated_at"]),
            item["app_name"],
            item["namespace"],
            item["messages"],
            item["title"] or "",
        )
        for item in found["items"]
    ]
    table = Table(["thread", "last used", "app", "namespace", "messages", "title"], rows, wide="title")
    return page_answer(found, table, page, "There are no conversations.")


@threads.command()
@connected
async def show(
    client: Client,
    *,
    thread: ThreadId,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    limit: Rows = 100,
    page: PageNumber = 1,
) -> CommandAnswer:
    """Show the messages of a conversation, oldest first."""
    where = scope.read(namespace, all_projects=all_projects)
    params = {"user_id": user, "app": app, "namespace": where, "size": limit, "page": page}
    found = await client.call("GET", _of(thread, "/messages"), params=params)
    rows = [
        (item["position"], local_time(item["created_at"]), item["role"], item["content"]) for item in found["items"]
    ]
    notes = [f"Page {page}; {found['total']} in all."] if len(rows) < found["total"] else []
    return CommandAnswer(found, Table(["#", "said", "by", "message"], rows, wide="message"), notes=notes)


@threads.command()
@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    thread: Annotated[str | None, typer.Option(metavar="THREAD", help="Only in this thread.")] = None,
    since: Since = None,
    until: Until = None,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find messages by meaning and by words, best match first."""
    body = {
        "user_id": user, "app": app, "query": words(query), "limit": limit, "thread_id": thread,
        "kind": "turn", "from_date": since, "to_date": until,
        "namespaces": scope.read(namespace, all_projects=all_projects),
    }  # fmt: skip
    return await found_passages(client, body, ["where", "said", "by", "message"], _hit)


def _hit(hit: dict[str, Any]) -> tuple[str, ...]:
    where = f"{plain(hit['thread_id'])}#{hit['position']}"
    return where, local_time(hit["created_at"]), hit["role"], hit["content"]


@threads.command()
@connected
async def log(
    client: Client,
    *,
    thread: ThreadId,
    message: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="One message; - reads JSON Lines like those of the REST API."),
    ],
    role: Annotated[str, typer.Option(metavar="NAME", help="Who says it: user, assistant, or a name.")] = "user",
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    about: About = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="What the conversation is about.")] = None,
    no_infer: Annotated[
        bool, typer.Option("--no-infer", help="Keep the conversation from the language model of the service.")
    ] = False,
) -> CommandAnswer:
    """Store messages of a conversation verbatim.

    With - each line of standard input is an object such as {"role": "user", "content": "Hello", "id": "m-1"}. Give
    messages an id, and the command can be repeated.
    """
    entries = _lines(read_stdin()) if message == ["-"] else [{"role": role, "content": words(message)}]
    where = scope.written(namespace, about)
    results: list[Any] = []
    for at in range(0, len(entries), _TOGETHER):
        body = {
            "user_id": user, "app": app, "namespace": where, "title": title, "infer": not no_infer,
            "messages": entries[at : at + _TOGETHER],
        }  # fmt: skip
        answer = await client.call("POST", _of(thread, "/messages"), body=body)
        results += [each | ({"index": at + each["index"]} if "error" in each else {}) for each in answer["results"]]
    refused = [each for each in results if "error" in each]
    added = sum(each.get("event") == "ADD" for each in results)
    known = len(results) - len(refused) - added
    asides = [f"Message {each['index'] + 1} was not stored: {plain(each['detail'])}" for each in refused]
    notes = [f"{known} were there already."] if known else []
    value = {"thread_id": thread, "results": results, "refused": refused}
    return CommandAnswer(
        value, f"Stored {added} of {len(results)} messages.", notes=notes, asides=asides, failed=bool(refused)
    )


def _lines(text: str) -> list[Any]:
    import json

    entries = []
    for number, line in enumerate(text.split("\n"), 1):  # a message may have the other ends of lines
        if line.strip():
            try:
                entries.append(json.loads(line))
            except ValueError as error:
                raise Invalid(f"line {number}", f"must be a JSON object: {error}") from None
    if not entries:
        raise Invalid("messages", "standard input has none")
    return entries


@threads.command()
@connected
async def close(
    client: Client,
    *,
    thread: ThreadId,
    user: User = None,
    namespace: Namespace = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="What it was about.")] = None,
    summary: Annotated[str | None, typer.Option(metavar="TEXT", help="What came of it.")] = None,
) -> CommandAnswer:
    """Mark a conversation as closed. Its next message opens it again."""
    body = {"user_id": user, "namespace": scope.written(namespace), "title": title, "summary": summary}
    answer = await client.call("POST", _of(thread, "/close"), body=body)
    return CommandAnswer(answer, f"Closed {answer['threads']} conversation{'s' if answer['threads'] != 1 else ''}.")


@threads.command()
@connected
async def delete(client: Client, *, thread: ThreadId, user: User = None, namespace: Namespace = None) -> CommandAnswer:
    """Delete a conversation. `openmemory threads restore` brings it back."""
    answer = await client.call("DELETE", _of(thread), params={"user_id": user, "namespace": scope.written(namespace)})
    return CommandAnswer(answer, f"Deleted {answer['messages']} messages.")


@threads.command()
@connected
async def restore(client: Client, *, thread: ThreadId, user: User = None, namespace: Namespace = None) -> CommandAnswer:
    """Bring back the deleted messages of a conversation."""
    body = {"user_id": user, "namespace": scope.written(namespace)}
    answer = await client.call("POST", _of(thread, "/restore"), body=body)
    return CommandAnswer(answer, f"Restored {answer['messages']} messages.")


@threads.command()
@connected
async def erase(
    client: Client,
    *,
    thread: ThreadId,
    user: User = None,
    namespace: Namespace = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> CommandAnswer:
    """Permanently erase a conversation with its messages and vectors."""
    confirm(f"Erase the conversation {plain(thread)} of {await client.user(user)}?", yes)
    body = {"user_id": user, "namespace": scope.written(namespace)}
    answer = await client.call("POST", _of(thread, "/erase"), body=body)
    return CommandAnswer(answer, f"Erased {answer['messages']} messages.")
