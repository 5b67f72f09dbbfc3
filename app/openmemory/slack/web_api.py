"""Slack's Web API, as far as it reads, over a client whose requests pass the egress policy.

    async with web_api(egress, token) as slack:
        async for page in slack.pages("conversations.list", "channels", types="public_channel"):
            ...

`slack_sdk` sends with urllib or aiohttp, past the policy. Its client is used for Socket Mode alone.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx

from openmemory.egress.clients import Egress, small_json
from openmemory.errors import Forbidden, Invalid, NotFound, OpenMemoryError, TooMany, Unavailable
from openmemory.slack.export import direct_name
from openmemory.slack.schemas import SlackChannel
from openmemory.slack.texts import Person, people_of

BASE_URL = "https://slack.com/api/"
_PAGE = 200
"""The number of objects that Slack recommends for one request."""
_LARGEST = 20_000_000
_SECONDS = 60.0
_ATTEMPTS = 5
_PATIENCE = 300.0
"""The longest wait in seconds that Slack may request. An apps that nobody bought needs at most a minute."""
_ALL_TYPES = "public_channel,private_channel,mpim,im"

_TOKEN = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"})
_ABSENT = frozenset(
    {
        "channel_not_found",
        "not_in_channel",
        "thread_not_found",
        "message_not_found",
        "user_not_found",
        "users_not_found",
    }
)

Pause = Callable[[float], Awaitable[None]]


class BrokenCursor(OpenMemoryError):
    """A cursor has expired: the list must be read from its beginning."""

    code = "invalid_cursor"


class WebApi:
    """Calls methods of the Web API with one token."""

    def __init__(self, http: httpx.AsyncClient, base_url: str, pause: Pause) -> None:
        self._http = http
        self._base_url = base_url.rstrip("/") + "/"
        self._pause = pause
        self._people: dict[str, Person] | None = None

    async def call(self, method: str, *, once: bool = False, **parameters: str | int | bool | None) -> dict[str, Any]:
        """Calls a method and returns its answer. Waits where Slack says so. `once`: a call that may have been carried
        out is not repeated.

        Raises:
            Forbidden: Slack rejects the token, or it lacks a scope.
            NotFound: there is no such channel, or the app is not in it.
            BrokenCursor: the cursor is not valid, or no longer.
            TooMany: Slack requests a longer wait.
            Unavailable: Slack does not answer, or reports another error.
        """
        form = {name: _form_value(value) for name, value in parameters.items() if value is not None}
        for attempt in range(_ATTEMPTS):
            try:
                answer = await small_json(
                    self._http, self._base_url + method, form=form, limit=_LARGEST, seconds=_SECONDS
                )
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                if status != 429 and (status < 500 or once):
                    raise Unavailable(f"Slack answers {method} with the status {status}{_unsure(once)}") from None
                wait = _retry_wait(error.response) if status == 429 else 2.0**attempt
                if wait > _PATIENCE:
                    raise TooMany(f"Slack wants {wait:.0f} seconds between requests", retry_after=wait) from None
            except httpx.HTTPError as error:
                if attempt == _ATTEMPTS - 1 or once:
                    why = f"{error or type(error).__name__}{_unsure(once)}"
                    raise Unavailable(f"Slack does not answer {method}: {why}") from None
                wait = 2.0**attempt
            else:
                if answer.get("ok") is True:
                    return answer
                if (error_code := _word(answer.get("error"))) != "ratelimited":
                    raise _refusal(method, error_code, answer)
                wait = 30.0
            await self._pause(wait)
        raise Unavailable(f"Slack refuses {method} again and again; try later", retry_after=60)

    async def pages(self, method: str, field: str, **parameters: str | int | bool | None) -> AsyncIterator[list[Any]]:
        """Yields the lists in a field of all pages of an answer.

        Raises:
            as `call` does.
        """
        cursor: str | None = None
        while True:
            answer = await self.call(method, once=False, limit=_PAGE, cursor=cursor, **parameters)
            value = answer.get(field)
            yield value if isinstance(value, list) else []
            more = answer.get("response_metadata")
            following = more.get("next_cursor") if isinstance(more, dict) else None
            if not isinstance(following, str) or not following:
                return
            if following == cursor:
                raise BrokenCursor(f"Slack answers {method} with the same cursor again")
            cursor = following

    async def whoami(self) -> dict[str, str]:
        """The workspace, the user and the bot of the token."""
        answer = await self.call("auth.test")
        return {name: _line(answer.get(name)) for name in ("team", "user", "url", "bot_id", "user_id")}

    async def people(self) -> dict[str, Person]:
        """The members of the workspace, by id."""
        if self._people is None:
            self._people = {}
            async for page in self.pages("users.list", "members"):
                self._people |= people_of(page)
        return self._people

    async def channels(self) -> list[SlackChannel]:
        """The channels that the token reaches and that may be loaded, by name. Without the scopes for private ones, it
        is the public ones."""
        try:
            return await self._channels(_ALL_TYPES)
        except Forbidden as error:
            if error.code != "slack_missing_scope":
                raise
            return await self._channels("public_channel")

    async def _channels(self, types: str) -> list[SlackChannel]:
        people = await self.people()
        channels = list[SlackChannel]()
        async for page in self.pages("conversations.list", "channels", types=types, exclude_archived=False):
            channels += [channel for raw in page if (channel := _channel(raw, people)) is not None]
        return sorted(channels, key=lambda one: one.name)

    async def channel(self, name: str) -> SlackChannel:
        """The channel of this name or id.

        Raises:
            NotFound: the token reaches no such channel.
        """
        reference = name.strip().removeprefix("#").removeprefix("@")
        if not reference:
            raise Invalid("channel", "must be the name of a channel, such as general, or its id")
        for one in await self.channels():
            if reference in (one.name, one.id, one.name.removeprefix("dm-")):
                return one
        hint = "Invite the app to it if it is private; `openmemory slack channels` lists what the token reaches."
        raise NotFound(f"The token reaches no channel {reference[:100]!r}.", code="channel_not_found", hint=hint)


@asynccontextmanager
async def web_api(
    egress: Egress, token: str, base_url: str = BASE_URL, pause: Pause = asyncio.sleep
) -> AsyncIterator[WebApi]:
    """Opens the Web API with a token. `base_url` is one that an administrator configured."""
    if not re.fullmatch(r"[\x21-\x7e]{10,500}", token):
        raise Invalid("token", "must be a token of Slack, such as one that begins with xoxb- or xoxp-")
    async with egress.async_client([base_url], timeout=_SECONDS) as http:
        http.headers["Authorization"] = f"Bearer {token}"
        yield WebApi(http, base_url, pause)


def _channel(raw: Any, people: dict[str, Person]) -> SlackChannel | None:
    if not isinstance(raw, dict) or not re.fullmatch(r"[A-Z0-9]{2,30}", id_ := str(raw.get("id"))):
        return None
    if raw.get("is_im"):
        return SlackChannel(id_, direct_name([str(raw.get("user"))], people), shared=False)
    created, name = raw.get("created"), raw.get("name")
    private = bool(raw.get("is_private") or raw.get("is_mpim") or raw.get("is_group"))
    if not isinstance(name, str) or not name:
        return None
    return SlackChannel(id_, name[:200], shared=not private, created=created if isinstance(created, int) else 0)


def _refusal(method: str, error: str, answer: dict[str, Any]) -> OpenMemoryError:
    if error in _TOKEN:
        return Forbidden(f"Slack rejects the token ({error}).", code="slack_token", hint="`openmemory slack connect`.")
    if error == "missing_scope":
        needed = _word(answer.get("needed"))
        hint = "Add it to the app, and install that again; `openmemory slack manifest` prints all scopes."
        return Forbidden(f"The token lacks the scope {needed} for {method}.", code="slack_missing_scope", hint=hint)
    if error in _ABSENT:
        return NotFound(f"Slack answers {method} with {error}.", code=error, hint="Invite the app to the channel.")
    if error == "invalid_cursor":
        return BrokenCursor(f"Slack answers {method} with {error}")
    return Unavailable(f"Slack answers {method} with {error}")


def _unsure(once: bool) -> str:
    return "; it may have been carried out" if once else ""


def _retry_wait(response: httpx.Response) -> float:
    """The seconds that `Retry-After` names."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return 30.0


def _form_value(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _word(value: Any) -> str:
    """An identifier in an answer: nothing else of that is shown."""
    match = re.fullmatch(r"[\w:,. ]{1,100}", value) if isinstance(value, str) else None
    return match[0] if match else "an error"


def _line(value: Any) -> str:
    return " ".join(value.split())[:200] if isinstance(value, str) else ""
