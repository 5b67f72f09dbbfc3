"""Loads public channels with the token of the service."""

from __future__ import annotations

import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from openmemory.config.sections import SlackSettings
from openmemory.egress.clients import Egress
from openmemory.errors import Forbidden, Invalid, SetupError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.slack.channels import SlackChannels
from openmemory.slack.loading import SlackLoaded, load
from openmemory.slack.schemas import ChannelPart, SlackSaved
from openmemory.slack.web_api import web_api

_FILE = "slack.token"
SECONDS = 45.0
"""The time after which a load begins no further part: clients wait a minute for a tool."""
WITHOUT = (
    "This service has no token of Slack. Set slack.token, or OPENMEMORY_SLACK_TOKEN, or run `openmemory slack connect`"
    " on its machine."
)  # fmt: skip


class SharedChannels:
    """Loads public channels for the user `slack-bot`: `await shared.load(caller, "general")`."""

    def __init__(self, channels: SlackChannels, settings: SlackSettings, folder: Path, egress: Egress) -> None:
        self._channels = channels
        self._settings = settings
        self._folder = folder
        self._egress = egress

    async def load(
        self, caller: Caller, channel: str, *, asks: Caller, days: int | None = None, threads: bool = True
    ) -> SlackLoaded:
        """Load what is new in a channel, for up to `SECONDS`. `caller` stores it for `asks`.

        A private channel is refused: the token may reach it, but those who call this service may not.

        Raises:
            Invalid: the service has no token.
            Forbidden: the app that asks is paused, the channel is private, or Slack rejects the token.
            NotFound, TooMany, Unavailable: Slack refuses.
        """
        token = required_token(self._settings, self._folder)
        await self._channels.refuse_if_paused(asks)

        async def save(part: ChannelPart) -> SlackSaved:
            return await self._channels.save(caller, part)

        async with web_api(self._egress, token, self._settings.base_url) as slack:
            slack_channel = await slack.channel(channel)
            if not slack_channel.shared:
                hint = "Load it for yourself with your own token: `openmemory slack load`."
                raise Forbidden("Only public channels are loaded for everybody.", code="slack_private", hint=hint)
            stored = await self._channels.stored(caller)
            stored_channel = next((one for one in stored.channels if one.channel_id == slack_channel.id), None)
            now = datetime.now(UTC)
            return await load(
                slack, slack_channel, save, stored=stored_channel, now=now, days=days, threads=threads, seconds=SECONDS
            )  # fmt: skip


def token_of(settings: SlackSettings, folder: Path) -> str:
    """The token of the settings, or of the data folder; empty if there is none.

    Raises:
        Unavailable: the file cannot be read.
    """
    if token := settings.token.get_secret_value():
        return token
    path = folder / _FILE
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise Unavailable(f"{path.name} in the data folder cannot be read: {type(error).__name__}") from None


def required_token(settings: SlackSettings, folder: Path) -> str:
    """The token of the settings, or of the data folder.

    Raises:
        Invalid: there is none.
        Unavailable: the file cannot be read.
    """
    if not (token := token_of(settings, folder)):
        raise Invalid("slack.token", WITHOUT, code="slack_token")
    return token


def save_token(folder: Path, token: str) -> Path:
    """Keep a token in the data folder, for the service and for commands on its machine. Only its owner may read it.

    Raises:
        SetupError: the file cannot be written.
    """
    path = folder / _FILE
    try:
        descriptor, draft = tempfile.mkstemp(prefix=f".{_FILE}.", dir=folder)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(token)
        Path(draft).replace(path)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror or error}") from None
    return path


def remove_token(folder: Path) -> bool:
    """Remove the token from the data folder. Returns True if there was one."""
    path = folder / _FILE
    there = path.exists()
    path.unlink(missing_ok=True)
    return there
