"""Sends to Slack with the token of the service, where an administrator allows it (`slack.send`)."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from openmemory.config.sections import SlackSettings
from openmemory.config.settings import LimitSettings
from openmemory.egress.clients import Egress
from openmemory.errors import Forbidden, Invalid, Unavailable
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.slack.channels import SlackChannels
from openmemory.slack.shared import required_token
from openmemory.slack.web_api import WebApi, web_api

MAX_TEXT = 40_000
"""The characters after which Slack cuts a message."""
MAX_BLOCKS = 50
"""The most blocks of a message that Slack takes."""
MAX_FILE = 1_000_000
"""The most characters of a file: assistants send texts."""
_UPLOADS = "files.slack.com"
"""The host that takes files."""
_EMAIL = re.compile(r"[^\s@<>]{1,100}@[^\s@<>]{1,200}")
_USER_ID = re.compile(r"[UW][A-Z0-9]{2,29}")


@dataclass(frozen=True, slots=True)
class SlackUser:
    """A member of the workspace."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class SlackDelivery:
    """A message or a file that was sent: the id of the channel, and the `ts` of the message or the id of the file."""

    channel: str
    id: str


class SlackSending:
    """Finds users, and sends messages and files: `await sending.message(caller, "ada@example.com", "It is done.")`.

    A request whose answer is lost is not sent again, because Slack may have carried it out.
    """

    def __init__(
        self, channels: SlackChannels, settings: SlackSettings, limits: LimitSettings, folder: Path, egress: Egress
    ) -> None:
        self._channels = channels
        self._settings = settings
        self._limits = limits
        self._folder = folder
        self._egress = egress

    async def user(self, caller: Caller, email: str) -> SlackUser:
        """Returns the member with this e-mail address.

        Raises:
            Forbidden: `slack.send` is off, the app is paused, or Slack rejects the token.
            NotFound: there is no such member.
        """
        async with self._slack(caller) as slack:
            return await _user(slack, email)

    async def message(self, caller: Caller, to: str, text: str, blocks: list[Any] | None = None) -> SlackDelivery:
        """Sends a message to a channel, by its name or id, or to a user, by e-mail address or id.

        `text` is in Slack's markup. `blocks` are the same in Slack's Block Kit; `text` then stands in notifications.

        Raises:
            Invalid: a field cannot be sent.
            Forbidden, NotFound, Unavailable: as for `user`.
        """
        validation.text(text, "text", MAX_TEXT, "a message of Slack")
        if blocks is not None and not 0 < len(blocks) <= MAX_BLOCKS:
            raise Invalid("blocks", f"must have 1 to {MAX_BLOCKS} entries, not {len(blocks)}")
        async with self._slack(caller) as slack:
            channel = await _place(slack, to)
            blocks_json = None if blocks is None else json.dumps(blocks)
            answer = await slack.call("chat.postMessage", channel=channel, text=text, blocks=blocks_json, once=True)
            result = SlackDelivery(str(answer.get("channel") or channel), str(answer.get("ts") or ""))
        await self._channels.record_message(caller, "message", result.channel)
        return result

    async def file(self, caller: Caller, to: str, name: str, content: str, comment: str | None = None) -> SlackDelivery:
        """Sends a file of text, as `message` sends a message.

        Raises:
            Invalid: a field cannot be sent, or Slack names a place that takes no files.
            Forbidden, NotFound, Unavailable: as for `user`.
        """
        name = validation.name(name, "name", self._limits)
        validation.text(content, "content", MAX_FILE, "a file of Slack")
        if comment is not None:
            validation.text(comment, "comment", MAX_TEXT, "a message of Slack")
        body = content.encode()
        async with self._slack(caller) as slack:
            channel = await _place(slack, to)
            place = await slack.call("files.getUploadURLExternal", filename=name, length=len(body))
            await self._upload(str(place.get("upload_url")), body)
            files = json.dumps([{"id": place.get("file_id"), "title": name}])
            await slack.call(
                "files.completeUploadExternal", files=files, channel_id=channel, initial_comment=comment, once=True
            )
        await self._channels.record_message(caller, "file", channel)
        return SlackDelivery(channel, str(place.get("file_id") or ""))

    @asynccontextmanager
    async def _slack(self, caller: Caller) -> AsyncIterator[WebApi]:
        if not self._settings.send:
            hint = "An administrator allows it with slack.send = true."
            raise Forbidden("This service sends nothing to Slack.", code="slack_send_off", hint=hint)
        await self._channels.refuse_if_paused(caller, "send to Slack")
        token = required_token(self._settings, self._folder)
        async with web_api(self._egress, token, self._settings.base_url) as slack:
            yield slack

    async def _upload(self, url: str, body: bytes) -> None:
        """Sends a file to the place that Slack names, without the token."""
        target, own = urlsplit(url), urlsplit(self._settings.base_url)
        if (target.scheme, target.netloc) not in {("https", _UPLOADS), (own.scheme, own.netloc)}:
            raise Unavailable("Slack names a place for the file that is not its own")
        async with self._egress.async_client([self._settings.base_url]) as http:
            try:
                (await http.post(url, content=body)).raise_for_status()
            except httpx.HTTPError as error:
                raise Unavailable(f"Slack did not take the file: {type(error).__name__}") from None


async def _place(slack: WebApi, to: str) -> str:
    """The id of the channel, or of the direct messages with a user."""
    to = to.strip()
    if _EMAIL.fullmatch(to):
        to = (await _user(slack, to)).id
    if not _USER_ID.fullmatch(to):
        return (await slack.channel(to)).id
    opened = (await slack.call("conversations.open", users=to)).get("channel")
    if not isinstance(opened, dict) or not isinstance(id_ := opened.get("id"), str):
        raise Unavailable("Slack answers conversations.open without a channel")
    return id_


async def _user(slack: WebApi, email: str) -> SlackUser:
    if not _EMAIL.fullmatch(email := email.strip()):
        raise Invalid("email", "must be an e-mail address, such as ada@example.com")
    user = (await slack.call("users.lookupByEmail", email=email)).get("user")
    if not isinstance(user, dict) or not _USER_ID.fullmatch(id_ := str(user.get("id"))):
        raise Unavailable("Slack answers users.lookupByEmail without a user")
    return SlackUser(id_, " ".join(str(user.get("real_name") or user.get("name") or id_).split())[:200])
