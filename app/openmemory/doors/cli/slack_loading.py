"""The commands that read from Slack or from an export, and send what they read to the service."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from openmemory.doors.cli.client import Client, where_to
from openmemory.doors.cli.options import ConfigFile, DataDir, User
from openmemory.doors.cli.output import CommandAnswer, Table, note, plain, read_stdin
from openmemory.errors import Forbidden, Invalid, NotFound, OpenMemoryError
from openmemory.slack.schemas import (
    APP,
    SLACK_BOT,
    ChannelPart,
    Save,
    SlackChannel,
    SlackSaved,
    StoredChannel,
)

if TYPE_CHECKING:
    from openmemory.slack.loading import SlackLoaded
    from openmemory.slack.web_api import WebApi

PATH = "/api/v1/slack"
_VARIABLES = ("SLACK_TOKEN", "SLACK_BOT_TOKEN")
_SHOWN = 20

Mine = Annotated[bool, typer.Option("--mine", help="Keep public channels for yourself, not for slack-bot.")]


def connect(
    *,
    forget: Annotated[bool, typer.Option("--forget", help="Remove the token from the data folder.")] = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Check a token of Slack, and keep it in the data folder for the service of this machine.

    The token comes from SLACK_TOKEN, SLACK_BOT_TOKEN, a question, or standard input. Only you can read the file.
    """
    import asyncio
    from getpass import getpass

    from openmemory.doors.cli.finding import data_folder
    from openmemory.slack.shared import remove_token, save_token

    settings = where_to(config, data_dir, None)
    folder = data_folder(settings)
    if forget:
        print("The token is removed." if remove_token(folder) else "There was no token.")
        return
    if not folder.is_dir():
        raise NotFound(f"{folder}: there is no data folder; `openmemory serve` makes one")
    token = _from_environment() or (getpass("Token of Slack: ") if sys.stdin.isatty() else read_stdin()).strip()

    async def check() -> dict[str, str]:
        async with _api(settings, token) as slack:
            return await slack.whoami()

    who = asyncio.run(check())
    save_token(folder, token)
    print(f"Connected to {plain(who['team'])} as {plain(who['user'])}.")


async def channels(client: Client) -> CommandAnswer:
    """List the channels that the token reaches on Slack."""
    async with _open(client) as slack:
        entries = await slack.channels()
    rows = [(one.name, one.id, "public" if one.shared else "private") for one in entries]
    value = {"channels": [asdict(one) for one in entries]}
    return CommandAnswer(value, Table(["channel", "id", "kind"], rows, wide="channel"))


async def load(
    client: Client,
    *,
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name or id.")],
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, max=36_500, help="Read at least the last N days.")
    ] = None,
    no_threads: Annotated[bool, typer.Option("--no-threads", help="Leave out replies.")] = False,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="TS", help="Only the thread of this message.")
    ] = None,
    user: User = None,
    mine: Mine = False,
) -> CommandAnswer:
    """Load a channel, or what is new in it. Run it again if it was interrupted: it goes on where it was.

    Public channels belong to the user slack-bot, others to you. The token is that of SLACK_TOKEN, SLACK_BOT_TOKEN, the
    settings, or `openmemory slack connect`.
    """
    from openmemory.slack import loading
    from openmemory.slack.texts import is_ts

    if thread is not None and not is_ts(thread):
        raise Invalid("--thread", "must be the ts of a message, such as 1767258000.000100")
    async with _open(client) as slack:
        target = await slack.channel(channel)
        owner = _owner(target, user, mine)
        save = _saving(client, owner)
        if thread is not None:
            result = await loading.load_thread(slack, target, save, thread)
        else:
            state = await _find_state(client, owner, target)
            now = datetime.now(UTC)
            result = await loading.load(
                slack, target, save, stored=state, now=now, days=days, threads=not no_threads
            )  # fmt: skip
    return _format_result(result)


def _format_result(result: SlackLoaded) -> CommandAnswer:
    summary = f"{plain(result.channel)}: {_counts(result.saved)}, {result.threads} threads read."
    return CommandAnswer(
        asdict(result),
        summary,
        notes=_left_out(result.skipped),
        asides=_format_refusals(result.saved),
        failed=bool(result.saved.refused),
    )


async def import_(
    client: Client,
    *,
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder or the ZIP file.")],
    channel: Annotated[
        list[str] | None, typer.Option("--channel", metavar="NAME", help="Only this channel; may be repeated.")
    ] = None,
    user: User = None,
    mine: Mine = False,
) -> CommandAnswer:
    """Import an export of a workspace, as Slack makes it. It can be repeated.

    Public channels belong to the user slack-bot, private ones and direct messages to you.
    """
    from openmemory.slack.export import opened
    from openmemory.slack.importing import import_channel

    names = {one.strip().removeprefix("#") for one in channel or ()}
    skipped, total, values = Counter[str](), SlackSaved(), list[dict[str, Any]]()
    with opened(path) as export:
        if missing := names - {one.channel.name for one in export.channels}:
            raise NotFound(f"The export has no channel {plain(min(missing))!r}.", code="channel_not_found")
        for one in export.channels:
            if names and one.channel.name not in names:
                continue
            result = await import_channel(export, one, _saving(client, _owner(one.channel, user, mine)), skipped)
            values.append({"channel": one.channel.name, **asdict(result)})
            total.add(result)
            if sys.stderr.isatty():
                note(f"{plain(one.channel.name)}: {_counts(result)}")
        unlisted = export.unlisted
    notes = _left_out(skipped)
    notes += [f"Left out: {plain(', '.join(unlisted[:_SHOWN]))}, of which no list says who may read it."] * bool(
        unlisted
    )
    summary = f"{len(values)} channels: {_counts(total)}."
    value = {"channels": values, "skipped": skipped, "unlisted": unlisted}
    return CommandAnswer(value, summary, notes=notes, asides=_format_refusals(total), failed=bool(total.refused))


async def listen(client: Client, *, user: User = None) -> None:
    """Store what is said in the channels that were loaded, until Ctrl-C. Edits and deletions are followed.

    It needs SLACK_APP_TOKEN, an app-level token with the scope connections:write, and the token that loads.
    """
    from openmemory.slack import loading
    from openmemory.slack.listening import events, part_of

    app_token = _from_environment("SLACK_APP_TOKEN")
    if not app_token:
        raise Invalid("SLACK_APP_TOKEN", "must be an app-level token of Slack, such as one that begins with xapp-")
    async with _open(client) as slack:
        there = {one.id: one for one in await slack.channels()}
        saving, followed = dict[str, Save](), dict[str, SlackChannel]()
        states = dict[str, StoredChannel]()
        for owner, channel in await _list_channels(client, user):
            if channel.channel_id in there and channel.channel_id not in followed:
                followed[channel.channel_id] = there[channel.channel_id]
                saving[channel.channel_id], states[channel.channel_id] = _saving(client, owner), channel
        if not followed:
            raise NotFound("No channel is stored that the token reaches. Load one first: `openmemory slack load`.")
        people = await slack.people()
        async with events(app_token, client.settings.slack.base_url) as coming:
            # Events that come meanwhile wait, so nothing falls between what was loaded and what is heard.
            for id_, one in followed.items():
                now = datetime.now(UTC)
                _show(await loading.load(slack, one, saving[id_], stored=states[id_], now=now))
            async for event, acknowledge in coming:
                part = part_of(event, followed, people)
                if part is not None:
                    try:
                        result = await saving[part.channel_id](part)
                    except OpenMemoryError as error:
                        note(f"openmemory: {error.message}")  # Slack sends the event again
                        continue
                    print(f"{plain(part.channel)}: {_counts(result)}", flush=True)
                await acknowledge()


def _show(result: SlackLoaded) -> None:
    _format_result(result).show(json=False)
    sys.stdout.flush()


@asynccontextmanager
async def _open(client: Client) -> AsyncIterator[WebApi]:
    from openmemory.doors.cli.finding import data_folder
    from openmemory.slack.shared import token_of

    token = _from_environment() or token_of(client.settings.slack, data_folder(client.settings))
    if not token:
        hint = "Set SLACK_TOKEN, or run `openmemory slack connect`; `openmemory slack manifest` makes an app."
        raise Invalid("token", f"is missing. {hint}")
    async with _api(client.settings, token) as slack:
        yield slack


@asynccontextmanager
async def _api(settings: Any, token: str) -> AsyncIterator[WebApi]:
    from openmemory.egress.clients import Egress
    from openmemory.slack.web_api import web_api

    async with web_api(Egress(settings.egress.allow), token, settings.slack.base_url) as slack:
        yield slack


def _from_environment(*names: str) -> str:
    """The first of these variables that has a value; without names, those of the token."""
    from openmemory.config.settings import environment

    variables = environment()
    return next((value for name in names or _VARIABLES if (value := variables.get(name, "").strip())), "")


def _owner(channel: SlackChannel, user: str | None, mine: bool) -> str | None:
    """The user to whom a channel belongs; None is the caller."""
    return user if user is not None or mine or not channel.shared else SLACK_BOT


def _saving(client: Client, owner: str | None) -> Save:
    """Returns a function that sends parts to the service."""

    async def save(part: ChannelPart) -> SlackSaved:
        body = {"user_id": owner, "app": APP, **asdict(part)}
        try:
            answer = await client.call("POST", f"{PATH}/messages", body=body, patient=True)
        except Forbidden as error:
            if error.code != "user_not_allowed":
                raise
            hint = f"--mine keeps the channel for yourself; only a key for {SLACK_BOT} stores it for everybody."
            raise Forbidden(error.message, code=error.code, hint=hint) from None
        return SlackSaved(**answer)

    return save


async def list_stored(client: Client, user: str | None, app: str | None = None) -> list[dict[str, Any]]:
    """The channels of a user; without a name, those of one's own and the public ones, if they may be read."""
    return await of_both(client, "channels", user, {"app": app})


async def of_both(client: Client, what: str, user: str | None, params: dict[str, Any]) -> list[Any]:
    """The answers for a user; without a name, those for oneself and for slack-bot, if the credential allows it."""
    answers = [await client.call("GET", f"{PATH}/{what}", params=params | {"user_id": user})]
    if user is None and await client.user(None) != SLACK_BOT:
        try:
            answers.append(await client.call("GET", f"{PATH}/{what}", params=params | {"user_id": SLACK_BOT}))
        except (Forbidden, NotFound) as error:
            if error.code not in ("user_not_allowed", "user_not_found"):
                raise
    return answers


async def _find_state(client: Client, owner: str | None, channel: SlackChannel) -> StoredChannel | None:
    """Returns the state of a channel of its owner; None if it is not stored."""
    try:
        answer = await client.call("GET", f"{PATH}/channels", params={"user_id": owner})
    except NotFound:
        return None
    return next((one for one in map(_as_stored, answer["channels"]) if one.channel_id == channel.id), None)


async def _list_channels(client: Client, user: str | None) -> list[tuple[str, StoredChannel]]:
    """The stored channels with their users."""
    users = await list_stored(client, user)
    return [(of["user"], _as_stored(one)) for of in users for one in of["channels"]]


def _as_stored(raw: dict[str, Any]) -> StoredChannel:
    return StoredChannel(**raw)


def _counts(result: SlackSaved) -> str:
    changes = f"{result.added} added, {result.changed} changed, {result.removed} removed, {result.unchanged} unchanged"
    return f"{changes}, {result.redacted} with secrets redacted" if result.redacted else changes


def _left_out(skipped: Any) -> list[str]:
    return [f"{count} left out: {reason}." for reason, count in sorted(skipped.items())]


def _format_refusals(result: SlackSaved) -> list[str]:
    return [
        f"{plain(one['ts'])} was not stored: {plain(one['detail'])}" for one in map(_fields, result.refused[:_SHOWN])
    ]


def _fields(one: Any) -> dict[str, str]:
    return one if isinstance(one, dict) else asdict(one)
