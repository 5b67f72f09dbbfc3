"""`openmemory threads`: stores, searches, reads and deletes conversations."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.operations import Show, add
from openmemory.doors.cli.options import (
    About,
    AllProjects,
    App,
    AsApp,
    Namespace,
    Query,
    Rows,
    Since,
    Until,
    User,
    words,
)
from openmemory.doors.cli.output import CommandAnswer, Table, local_time, page_answer, plain, read_stdin
from openmemory.doors.cli.passages import list_passages
from openmemory.errors import Invalid
from openmemory.operations.threads import (
    PATH,
    close_thread,
    delete_thread,
    erase_thread,
    list_messages,
    list_threads,
    restore_thread,
)

threads = typer.Typer(no_args_is_help=True)

ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="The thread's id.")]

_TOGETHER = 500
"""Messages in one request."""


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (
            item["thread_id"],
            local_time(item["updated_at"]),
            item["app_name"],
            item["namespace"],
            item["messages"],
            item["title"] or "",
        )
        for item in answer["items"]
    ]
    table = Table(["thread", "last used", "app", "namespace", "messages", "title"], rows, wide="title")
    return page_answer(answer, table, arguments["page"], "There are no conversations.")


def _messages(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (item["position"], local_time(item["created_at"]), item["role"], item["content"]) for item in answer["items"]
    ]
    place = f"Around {arguments['around']}" if arguments["around"] else f"Page {arguments['page']}"
    notes = [f"{place}; {answer['total']} in all."] if len(rows) < answer["total"] else []
    return CommandAnswer(answer, Table(["#", "said", "by", "message"], rows, wide="message"), notes=notes)


add(threads, list_threads, _format_list)
add(threads, list_messages, _messages, size=100)


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
    return await list_passages(client, body, ["where", "said", "by", "message"], _hit)


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
    where = scope.target(namespace, about)
    results: list[Any] = []
    for at in range(0, len(entries), _TOGETHER):
        body = {
            "user_id": user, "app": app, "namespace": where, "title": title, "infer": not no_infer,
            "messages": entries[at : at + _TOGETHER],
        }  # fmt: skip
        answer = await client.call("POST", f"{PATH}/{path_part(thread)}/messages", body=body)
        results += [each | ({"index": at + each["index"]} if "error" in each else {}) for each in answer["results"]]
    failures = [each for each in results if "error" in each]
    count = sum(each.get("event") == "ADD" for each in results)
    duplicates = len(results) - len(failures) - count
    asides = [f"Message {each['index'] + 1} was not stored: {plain(each['detail'])}" for each in failures]
    notes = [f"{duplicates} were there already."] if duplicates else []
    value = {"thread_id": thread, "results": results, "refused": failures}
    return CommandAnswer(
        value, f"Stored {count} of {len(results)} messages.", notes=notes, asides=asides, failed=bool(failures)
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


def _format_closing(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    return CommandAnswer(answer, f"Closed {answer['threads']} conversation{'s' if answer['threads'] != 1 else ''}.")


def _format_change(verb: str) -> Show:
    return lambda answer, _: CommandAnswer(answer, f"{verb} {answer['messages']} messages.")


async def _question(client: Client, arguments: dict[str, Any]) -> str:
    return f"Erase the conversation {plain(arguments['thread_id'])} of {await client.user(arguments['user'])}?"


add(threads, close_thread, _format_closing)
add(threads, delete_thread, _format_change("Deleted"))
add(threads, restore_thread, _format_change("Restored"))
add(threads, erase_thread, _format_change("Erased"), _question)
