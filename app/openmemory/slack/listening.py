"""Follows what is said in channels, over Socket Mode.

async with events(app_token, base_url) as coming:
    async for event, acknowledge in coming:
        ...
        await acknowledge()
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from openmemory.errors import Forbidden, Unavailable
from openmemory.slack.schemas import ChannelPart, SlackChannel, SlackMessage
from openmemory.slack.texts import Person, is_ts, message_of

if TYPE_CHECKING:
    from slack_sdk.socket_mode.client import BaseSocketModeClient
    from slack_sdk.socket_mode.request import SocketModeRequest

Acknowledge = Callable[[], Awaitable[None]]
"""Tells Slack that an event was stored. It sends the others again."""


def part_of(
    event: Mapping[str, Any], channels: Mapping[str, SlackChannel], people: Mapping[str, Person]
) -> ChannelPart | None:
    """Returns what an event changes in one of the channels; None if it changes nothing that is stored."""
    channel = channels.get(str(event.get("channel")))
    if channel is None or event.get("type") != "message":
        return None
    part = ChannelPart(channel.name, channel.id)
    subtype = event.get("subtype")
    if subtype == "message_deleted":
        part.gone = [ts for ts in (event.get("deleted_ts"),) if is_ts(ts)]
        return part if part.gone else None
    raw = event.get("message") if subtype == "message_changed" else event
    message = message_of(raw, people, {channel.id: channel.name})
    if isinstance(message, SlackMessage):
        part.messages = [message]
        return part
    # Slack shows what is left of a deleted message with replies, or a text was taken out.
    ts = str(raw.get("ts")) if subtype == "message_changed" and isinstance(raw, Mapping) else ""
    part.gone = [ts] if is_ts(ts) else []
    return part if part.gone else None


@asynccontextmanager
async def events(app_token: str, base_url: str) -> AsyncIterator[AsyncIterator[tuple[Mapping[str, Any], Acknowledge]]]:
    """Opens a connection, and opens it again whenever it breaks. Yields events in their order.

    Raises:
        Forbidden: Slack rejects the token.
        Unavailable: Slack does not answer.
    """
    from slack_sdk.errors import SlackApiError, SlackClientError
    from slack_sdk.socket_mode.builtin import SocketModeClient
    from slack_sdk.socket_mode.response import SocketModeResponse
    from slack_sdk.web import WebClient

    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[tuple["SocketModeRequest", Mapping[str, Any]]]()

    def enqueue(_: BaseSocketModeClient, request: SocketModeRequest) -> None:
        event = request.payload.get("event") if request.type == "events_api" else None
        loop.call_soon_threadsafe(waiting.put_nowait, (request, event if isinstance(event, Mapping) else {}))

    # One worker keeps the order of the events.
    client = SocketModeClient(app_token, web_client=WebClient(base_url=base_url), concurrency=1)
    client.socket_mode_request_listeners.append(enqueue)

    async def coming() -> AsyncIterator[tuple[Mapping[str, Any], Acknowledge]]:
        while True:
            request, event = await waiting.get()
            answer = SocketModeResponse(envelope_id=request.envelope_id)

            async def acknowledge(answer: SocketModeResponse = answer) -> None:
                await asyncio.to_thread(client.send_socket_mode_response, answer)

            yield event, acknowledge

    try:
        await asyncio.to_thread(client.connect)
    except SlackApiError as error:
        await asyncio.to_thread(client.close)
        hint = "It is an app-level token with the scope connections:write, such as one that begins with xapp-."
        raise Forbidden(f"Slack rejects the token ({error.response.get('error')}).", hint=hint) from None
    except (SlackClientError, OSError) as error:
        await asyncio.to_thread(client.close)
        raise Unavailable(f"Slack does not answer: {type(error).__name__}") from None
    try:
        yield coming()
    finally:
        await asyncio.to_thread(client.close)
