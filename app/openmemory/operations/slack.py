"""Channels of Slack: storing, listing, searching and forgetting them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import FromDate, ToDate, first_moment, last_moment
from openmemory.slack.schemas import (
    MAX_THREAD,
    ChannelForgotten,
    ChannelId,
    ChannelName,
    ChannelPart,
    SlackAnswer,
    SlackMessage,
    SlackSaved,
    StoredChannels,
    Ts,
)

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "slack"
PATH = "/api/v1/slack"

_MANY = 1_000

SlackMessages = Annotated[list[SlackMessage], Field(max_length=_MANY, description="Messages, in any order.")]
After = Annotated[
    Ts | None, Field(description="With `until`: stored messages between them that are not among these are erased.")
]
Until = Annotated[Ts | None, Field(description="The end of that range, which it includes.")]
Complete = Annotated[Ts | None, Field(description="Everything from this time up to `until` is now stored.")]
Threads = Annotated[
    dict[Ts, Annotated[list[Ts], Field(max_length=MAX_THREAD)]],
    Field(max_length=_MANY, description="All messages of some threads, by the `ts` of the first. Others are erased."),
]
Gone = Annotated[list[Ts], Field(max_length=_MANY, description="Messages that Slack has no longer.")]


@operation(
    "POST", f"{PATH}/messages", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413),
    body="SlackMessagesBody", example={
        "user_id": "slack-bot", "app": "slack", "channel": "general", "channel_id": "C024BE91L",
        "messages": [
            {
                "ts": "1767258000.000100", "text": "The release is on Thursday.", "user_id": "U0G9QF9C6",
                "user_name": "ada", "real_name": "Ada Lovelace",
            },
        ],
    },
)  # fmt: skip
async def save_slack_messages(
    services: Services,
    caller: Caller,
    *,
    channel: ChannelName,
    channel_id: ChannelId,
    messages: SlackMessages,
    after: After = None,
    until: Until = None,
    since: Complete = None,
    threads: Threads = {},  # noqa: B006 - it is never changed
    gone: Gone = [],  # noqa: B006 - likewise
) -> SlackSaved:
    """Store messages of a channel. One that is there already is stored once, and an edited one is replaced.

    Public channels belong to the user `slack-bot` by convention, private ones to the user who loads them.
    """
    part = ChannelPart(channel, channel_id, messages, after, until, since, threads, gone)
    return await services.slack.channels.save(caller, part)


@operation("GET", f"{PATH}/channels", command="slack status", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_slack_channels(services: Services, caller: Caller) -> StoredChannels:
    """List the channels that are stored, with how far they were loaded."""
    return await services.slack.channels.stored(caller)


@operation(
    "DELETE", f"{PATH}/channels/{{channel}}", command="slack forget", tag=TAG, speaker=Speaker.OWNER,
    errors=(403, 404),
)  # fmt: skip
async def forget_slack_channel(services: Services, caller: Caller, *, channel: ChannelName) -> ChannelForgotten:
    """Permanently erase a channel with its messages and vectors."""
    return await services.slack.channels.forget(caller, channel)


@operation(
    "GET", f"{PATH}/search", command="slack search", tool="search_slack_channels", tag=TAG, speaker=Speaker.READER,
    errors=(403, 404, 413),
)  # fmt: skip
async def search_slack(
    services: Services,
    caller: Caller,
    *,
    query: Annotated[str, Field(description="A question, or keywords.", examples=["when is the release?"])],
    channel: Annotated[ChannelName | None, Field(description="Only this channel.")] = None,
    author: Annotated[
        str | None, Field(min_length=1, max_length=200, description="Only what this person says: a name or an id.")
    ] = None,
    from_date: FromDate | None = None,
    to_date: ToDate | None = None,
    limit: Annotated[int, Field(ge=1, le=100, description="The number of messages.")] = 10,
) -> SlackAnswer:
    """Find messages of the user's channels by meaning and by words, best first.

    Public channels are those of the user `slack-bot`.
    """
    from openmemory.slack.searching import SlackQuery

    zone = caller.timezone
    slack_query = SlackQuery(query, channel, author, first_moment(from_date, zone), last_moment(to_date, zone), limit)
    return await services.slack.searching.search([caller], slack_query)
