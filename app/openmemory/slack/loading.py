"""Loads a channel from Slack, oldest first, so that the stored messages show where to continue.

    loaded = await load(slack, channel, save, stored=status, now=datetime.now(UTC))

Time is cut into windows. The messages of a window are read with all pages, then its threads, and then they are stored
with the time up to which the channel is complete. A load that ends half-way is continued there. Messages may change
later, so a load reads the days before again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from openmemory.errors import NotFound
from openmemory.slack.schemas import (
    MAX_THREAD,
    Save,
    SlackChannel,
    SlackMessage,
    SlackSaved,
    StoredChannel,
    moment_of,
    parts,
    ts_of,
)
from openmemory.slack.texts import messages_of
from openmemory.slack.web_api import BrokenCursor, WebApi

LOOK_BACK = timedelta(days=7)
"""The time before the end of the last load that is read again, for edits, deletions and replies."""
_FIRST_WINDOW = timedelta(days=7)
_LONGEST_WINDOW = timedelta(days=1_000)
_MANY, _FEW = 2_000, 200
"""The numbers of messages above and below which the next window is shorter or longer."""
_RESTARTS = 3
"""The number of times that a window is read again because its cursor broke."""
_BEGINNING = datetime.fromisoformat("2013-01-01T00:00:00+00:00")
"""Before the first message of Slack."""


@dataclass(slots=True)
class SlackLoaded:
    """The result of a load. `complete` is false if its time was over: another load goes on."""

    channel: str
    channel_id: str
    threads: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    complete: bool = True
    through: str | None = None
    saved: SlackSaved = field(default_factory=SlackSaved)


async def load(
    slack: WebApi,
    channel: SlackChannel,
    save: Save,
    *,
    stored: StoredChannel | None,
    now: datetime,
    days: int | None = None,
    threads: bool = True,
    seconds: float | None = None,
) -> SlackLoaded:
    """Loads what is new in a channel, and the days before again.

    `days`: at least so many of them; without it, the first load reads everything. `seconds`: the time after which no
    further window begins.

    Raises:
        Forbidden, NotFound, TooMany, Unavailable: Slack refuses. What was stored stays.
    """
    result, skipped = SlackLoaded(channel.name, channel.id), Counter[str]()
    people, ends = await slack.people(), None if seconds is None else time.monotonic() + seconds
    names = {channel.id: channel.name}
    start, width = _start(channel, stored, now, days), _FIRST_WINDOW
    since, after, end = ts_of(start), ts_of(start), ts_of(now)
    while moment_of(after) < now:
        if ends is not None and time.monotonic() > ends:
            result.complete = False
            break
        until = min(now, moment_of(after) + width)
        raw = await _window(slack, channel, after, ts_of(until))
        messages = list(messages_of(raw, people, skipped, names))
        whole = dict[str, list[str]]()
        for first in [one for one in messages if threads and one.thread_ts == one.ts]:
            replies = await _thread(slack, channel, first.ts)
            thread = list(messages_of(replies, people, skipped, names))
            # The first message is there, with a thread_ts, even if all replies are gone.
            messages += [one for one in thread if one.ts != first.ts]
            if len(thread) <= MAX_THREAD:
                whole[first.ts] = [one.ts for one in thread] or [first.ts]
            result.threads += 1
        slices = parts(channel, _once(messages), after, ts_of(until))
        slices[-1].since, slices[-1].threads = since, whole
        for part in slices:
            result.saved.add(await save(part))
        width = width * 4 if len(messages) < _FEW else width / 2 if len(messages) > _MANY else width
        width, after = min(width, _LONGEST_WINDOW), ts_of(until)
        result.through = after
    result.through = result.through or end
    result.skipped = dict(skipped)
    return result


async def load_thread(slack: WebApi, channel: SlackChannel, save: Save, ts: str) -> SlackLoaded:
    """Loads one thread, with its edits and deletions.

    Raises:
        Forbidden, NotFound, TooMany, Unavailable: Slack refuses.
    """
    result, skipped = SlackLoaded(channel.name, channel.id, threads=1), Counter[str]()
    raw = await _thread(slack, channel, ts)
    messages = _once(list(messages_of(raw, await slack.people(), skipped, {channel.id: channel.name})))
    slices = parts(channel, messages)
    if len(messages) <= MAX_THREAD:
        slices[-1].threads = {ts: [one.ts for one in messages]}
    for part in slices:
        result.saved.add(await save(part))
    result.skipped = dict(skipped)
    return result


def _start(channel: SlackChannel, stored: StoredChannel | None, now: datetime, days: int | None) -> datetime:
    """The time from which a channel is read."""
    earliest = None if days is None else max(now - timedelta(days=days), min(_BEGINNING, now))
    if stored is not None and stored.through is not None:
        go_on = min(moment_of(stored.through), now) - LOOK_BACK
        return go_on if earliest is None else min(earliest, go_on)
    if earliest is not None:
        return earliest
    # A day earlier, for the clocks of others; channels that were converted have messages from before they were made.
    created = _BEGINNING if channel.created <= 0 else moment_of(f"{channel.created}.000000") - timedelta(days=1)
    return min(max(created, _BEGINNING), now)


async def _window(slack: WebApi, channel: SlackChannel, after: str, until: str) -> list[Any]:
    """The messages after one time up to another."""
    # `inclusive` would be for both ends; a millionth of a second more includes the last one.
    beyond = ts_of(moment_of(until) + timedelta(microseconds=1))
    return await _whole(
        slack, "conversations.history", channel=channel.id, oldest=after, latest=beyond, inclusive=False
    )  # fmt: skip


async def _thread(slack: WebApi, channel: SlackChannel, ts: str) -> list[Any]:
    """All messages of a thread, the first one included; none if the thread is gone."""
    try:
        return await _whole(slack, "conversations.replies", channel=channel.id, ts=ts)
    except NotFound as error:
        if error.code != "thread_not_found":
            raise
        return []


async def _whole(slack: WebApi, method: str, **parameters: str | bool) -> list[Any]:
    """The messages of all pages. They are read from the first page again if the cursor expires."""
    for attempt in range(_RESTARTS + 1):
        messages = list[Any]()
        try:
            async for page in slack.pages(method, "messages", **parameters):
                messages += page
        except BrokenCursor:
            if attempt == _RESTARTS:
                raise
            continue
        return messages
    raise AssertionError("the last attempt returns or raises")


def _once(messages: list[SlackMessage]) -> list[SlackMessage]:
    """Each message once: a page of replies begins with the first message, and a reply may be in the channel too."""
    return list({one.ts: one for one in messages}.values())
