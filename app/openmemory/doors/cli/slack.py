"""`openmemory slack`: loads, imports, searches and forgets channels of Slack."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from openmemory.doors.cli import times
from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.operations import Yes
from openmemory.doors.cli.options import AsApp, Query, Rows, User, words
from openmemory.doors.cli.output import CommandAnswer, Table, confirm, local_time, plain
from openmemory.doors.cli.slack_loading import PATH, channels, connect, import_, list_stored, listen, load, of_both
from openmemory.errors import NotFound

slack = typer.Typer(no_args_is_help=True)

After = Annotated[
    str | None,
    typer.Option(metavar="TIME", callback=times.start, help="Only from this time on: a date, a time, or yesterday."),
]
Before = Annotated[
    str | None, typer.Option(metavar="TIME", callback=times.end, help="Only until the end of this time.")
]
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name.")]


@slack.command()
def manifest(
    *,
    public_only: Annotated[bool, typer.Option("--public-only", help="Leave out private channels.")] = False,
    no_listen: Annotated[bool, typer.Option("--no-listen", help="Leave out what `slack listen` needs.")] = False,
    send: Annotated[bool, typer.Option("--send", help="Add what assistants need to send messages and files.")] = False,
) -> None:
    """Print the manifest of an app, to paste at https://api.slack.com/apps under "From a manifest"."""
    from openmemory.slack import manifest as text

    print(text.manifest(public_only=public_only, listen=not no_listen, send=send))


@slack.command()
@connected
async def status(client: Client, *, user: User = None, app: AsApp = None) -> CommandAnswer:
    """List the channels that are stored, with how far they were loaded."""
    users = await list_stored(client, user, app)
    rows = [
        (one["channel"], of["user"], one["messages"], local_time(one["newest"]), _format_position(one))
        for of in users
        for one in of["channels"]
    ]
    table = Table(["channel", "user", "messages", "newest", "loaded until"], rows, wide="channel")
    return CommandAnswer({"users": users}, table, notes=[] if rows else ["No channel is stored."])


def _format_position(one: dict[str, Any]) -> str:
    return local_time(float(one["through"])) if one["through"] else ""


@slack.command()
@connected
async def search(
    client: Client,
    *,
    query: Query,
    user: User = None,
    app: AsApp = None,
    channel: Annotated[str | None, typer.Option(metavar="NAME", help="Only this channel.")] = None,
    author: Annotated[str | None, typer.Option(metavar="NAME", help="Only what this person says.")] = None,
    after: After = None,
    before: Before = None,
    limit: Rows = 10,
) -> CommandAnswer:
    """Find messages by meaning and by words, best match first."""
    params = {
        "app": app, "query": words(query), "channel": channel, "author": author, "from_date": after,
        "to_date": before, "limit": limit,
    }  # fmt: skip
    answers = await of_both(client, "search", user, params)
    hits = sorted((one for answer in answers for one in answer["results"]), key=lambda one: -one["score"])[:limit]
    notes = {answer["note"]: None for answer in answers if answer.get("note") and (answer["results"] or not hits)}
    rows = [
        (f"{one['score']:.2f}", one["channel"], local_time(float(one["timestamp"])), one["user"], one["content"])
        for one in hits
    ]
    table = Table(["score", "channel", "said", "by", "message"], rows, wide="message")
    return CommandAnswer({"results": hits, "query": params["query"]}, table, notes=notes)


@slack.command()
@connected
async def forget(
    client: Client, *, channel: ChannelArgument, user: User = None, yes: Yes = False
) -> CommandAnswer:  # fmt: skip
    """Permanently erase a channel with its messages and vectors. A later load brings it back."""
    name = channel.strip().removeprefix("#")
    owners = [
        of["user"] for of in await list_stored(client, user) for one in of["channels"] if one["channel"] == name
    ]  # fmt: skip
    if not owners:
        raise NotFound(f"No channel {plain(name)!r} is stored.", code="channel_not_found")
    confirm(f"Erase the channel {plain(name)} of {owners[0]}?", yes)
    path = f"{PATH}/channels/{path_part(name)}"
    answer = await client.call("DELETE", path, params={"user_id": owners[0]})
    return CommandAnswer(answer | {"user": owners[0]}, f"Erased {answer['messages']} messages of {owners[0]}.")


slack.command()(connect)
slack.command("channels")(connected(channels))
slack.command("load")(connected(load))
slack.command("import")(connected(import_))
slack.command("listen")(connected(listen))
