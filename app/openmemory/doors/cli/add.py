"""`openmemory add`: stores one text."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import scope, times
from openmemory.doors.cli.client import Client, connected
from openmemory.doors.cli.options import (
    About,
    App,
    Category,
    ExpiresAt,
    Kind,
    Metadata,
    Namespace,
    Thread,
    TtlDays,
    User,
    json_of,
    words,
)
from openmemory.doors.cli.output import CommandAnswer, local_time, plain, read_stdin

_DONE = {"NONE": "Already remembered", "UPDATE": "Completed", "SUPERSEDE": "Remembered in place of an older one"}


@connected
async def add(
    client: Client,
    *,
    text: Annotated[
        list[str],
        typer.Argument(metavar="TEXT", help="The text to remember, without quotes; - reads standard input."),
    ],
    user: User = None,
    app: App = None,
    namespace: Namespace = None,
    about: About = None,
    thread: Thread = None,
    kind: Kind = None,
    key: Annotated[str | None, typer.Option(metavar="NAME", help="A name that you choose for it.")] = None,
    importance: Annotated[float | None, typer.Option(metavar="N", min=0, max=1, help="From 0 to 1.")] = None,
    category: Category = None,
    metadata: Metadata = None,
    ttl_days: TtlDays = None,
    expires_at: ExpiresAt = None,
    created_at: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            callback=times.start,
            help="When it was said, such as 2026-01-31, yesterday or '2 days ago'.",
        ),
    ] = None,
    supersedes: Annotated[
        list[str] | None,
        typer.Option(
            "--supersedes", metavar="ID", help="A memory in whose place the text holds from now on. Can be repeated."
        ),
    ] = None,
    infer: Annotated[
        bool, typer.Option("--infer", help="Let the language model of the service extract facts from the text.")
    ] = False,
) -> CommandAnswer:
    """Remember one text, word for word unless --infer is given."""
    body = {
        "user_id": user,
        "text": read_stdin() if text == ["-"] else words(text),
        "app": app,
        "namespace": scope.target(namespace, about),
        "thread_id": thread,
        "categories": category,
        "ttl_days": ttl_days,
        "kind": kind,
        "key": key,
        "importance": importance,
        "metadata": json_of(metadata),
        "expires_at": expires_at,
        "created_at": created_at,
        "supersedes": supersedes or [],
        "infer": infer,
    }
    answer = await client.call("POST", "/api/v1/memories", body=body)
    if answer["capture_id"]:
        return _format_capture(answer)
    similar = (
        f"  may say the same: {one['id']}: {plain(one['memory'])}" for one in answer.get("possible_duplicates", [])
    )
    near = (
        f"  may no longer hold: {one['id']} ({local_time(one['created_at'])}): {plain(one['memory'])}"
        for one in answer.get("near", [])
    )
    notes = [answer["note"]] if answer.get("note") else []
    message = f"{_DONE.get(answer['event'], 'Remembered')}: {answer['id']}"
    return CommandAnswer(answer, message, *near, *similar, notes=notes)


def _format_capture(outcome: dict[str, Any]) -> CommandAnswer:
    """The answer about a text that a language model was asked about."""
    lines = [f"{one['event']}: {one['id']}: {plain(one['memory'])}" for one in outcome["results"]]
    lines += [f"Not remembered ({one['reason']}): {plain(one['memory'] or '')}" for one in outcome["refused"]]
    if outcome["status"] != "done":
        lines.append(f"The text is kept as capture {outcome['capture_id']}, which is {outcome['status']}.")
    return CommandAnswer(outcome, *lines or ["Nothing to remember."])
