"""`openmemory sessions`: saves, lists, searches and reads sessions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.operations import add
from openmemory.doors.cli.options import About, AllProjects, App, AsApp, Namespace, Query, Rows, User, words
from openmemory.doors.cli.output import (
    CommandAnswer,
    Table,
    local_time,
    page_answer,
    passages,
    plain,
    plain_lines,
    read_stdin,
    text_of,
)
from openmemory.doors.cli.passages import list_passages
from openmemory.operations.sessions import list_sessions, read_session, save_session

sessions = typer.Typer(no_args_is_help=True)

Number = Annotated[int, typer.Argument(metavar="NUMBER", help="The number of the session in its project.")]


@sessions.command()
@connected
async def save(
    client: Client,
    *,
    number: Number,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it was about, in a line.")],
    summary: Annotated[str, typer.Option(metavar="TEXT", help="What came of it.")] = "",
    file: Annotated[
        str | None, typer.Option("--file", metavar="FILE|-", help="Its text, such as a transcript in Markdown.")
    ] = None,
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    about: About = None,
) -> CommandAnswer:
    """Save a session. One of the same number is replaced.

    `openmemory threads delete session-NUMBER` deletes it.
    """
    content = "" if file is None else read_stdin() if file == "-" else text_of(file)
    where = scope.target(namespace, about)
    body = {
        "user_id": user, "app": app, "namespace": where, "number": number, "title": title, "summary": summary,
        "content": content,
    }  # fmt: skip
    answer = await client.call(save_session.method, save_session.path, body=body)
    what = {"ADD": "added", "UPDATE": "updated", "NONE": "is unchanged"}[answer["event"]]
    notes = [f"{', '.join(answer['redacted'])} redacted."] if answer.get("redacted") else []
    notes += [answer["note"]] if answer.get("note") else []
    notes += [f"It replaces the session of {plain(answer['replaces'])}."] if answer.get("replaces") else []
    return CommandAnswer(answer, f"Session {number} {what}: {passages(answer['passages'])}.", notes=notes)


def _format_list(answer: Any, arguments: dict[str, Any]) -> CommandAnswer:
    rows = [
        (each["number"], local_time(each["updated_at"]), each["app_name"], each["namespace"], each["title"])
        for each in answer["items"]
    ]
    table = Table(["#", "saved", "app", "namespace", "title"], rows, wide="title")
    return page_answer(answer, table, arguments["page"], "There are no sessions.")


def _text(answer: Any, _: dict[str, Any]) -> CommandAnswer:
    session = answer["session"]
    lines = [f"{session['number']}. {plain(session['title'])} ({local_time(session['updated_at'])})"]
    for text in (session["summary"], answer["content"]):
        lines += ["", *plain_lines(text)] if text else []
    return CommandAnswer(answer, *lines)


add(sessions, list_sessions, _format_list)
add(sessions, read_session, _text)


@sessions.command()
@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: AsApp = None,
    namespace: Namespace = None,
    all_projects: AllProjects = False,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find passages of sessions by meaning and by words, best match first."""
    body = {
        "user_id": user, "app": app, "query": words(query), "limit": limit, "kind": "session",
        "namespaces": scope.read(namespace, all_projects=all_projects),
    }  # fmt: skip
    return await list_passages(client, body, ["#", "heading", "text"], _hit)


def _hit(hit: dict[str, Any]) -> tuple[str, ...]:
    return (hit["thread_id"] or "").removeprefix("session-"), hit["heading"] or "", hit["content"]
