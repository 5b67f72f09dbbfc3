"""Imports channels from an export."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from openmemory.slack.export import ExportedChannel, SlackExport
from openmemory.slack.schemas import PART, Save, SlackMessage, SlackSaved, moment_of, parts, ts_of
from openmemory.slack.texts import messages_of


async def import_channel(export: SlackExport, one: ExportedChannel, save: Save, skipped: Counter[str]) -> SlackSaved:
    """Stores the messages of a channel, the oldest first. `skipped` counts what is no message of somebody, by reason.

    From its first message to its last, the export is complete, so a stored message in between that it lacks is erased.

    Raises:
        Invalid: a file is no list of messages.
    """
    result, waiting = SlackSaved(), list[SlackMessage]()
    since: str | None = None
    after = ""

    async def send() -> None:
        nonlocal after
        until = max((each.ts for each in waiting), key=moment_of)
        slices = parts(one.channel, waiting, after, until)
        slices[-1].since = since
        for part in slices:
            result.add(await save(part))
        after = until
        waiting.clear()

    for day in export.days(one):
        waiting += messages_of(day, export.people, skipped, export.names)
        if waiting and since is None:
            first = min(moment_of(each.ts) for each in waiting)
            since = after = ts_of(first - timedelta(microseconds=1))
        if len(waiting) >= PART:
            await send()
    if waiting:
        await send()
    return result
