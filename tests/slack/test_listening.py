"""Following what is said over Socket Mode, through Slack's own client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from slack_sdk.web import WebClient

from openmemory.errors import Forbidden
from openmemory.identity.caller import Caller
from openmemory.slack.listening import events, part_of
from openmemory.slack.schemas import Save, SlackChannel
from openmemory.slack.texts import people_of
from tests.slack.conftest import Rows
from tests.slack.fake import APP_LEVEL, BOT, FakeSlack
from tests.slack.workspace import ADA, BOB, GENERAL, Workspace, said, ts_at

CHANNELS = {GENERAL: SlackChannel(GENERAL, "general", shared=True)}


async def _taken(
    fake: FakeSlack, save: Save, workspace: Workspace, sent: list[dict[str, Any]], drop_after: int = -1
) -> None:
    """Sends events and stores them as they come."""
    people = people_of(workspace.users)
    async with events(APP_LEVEL, fake.base_url) as coming:
        socket = await asyncio.to_thread(fake.connections.get, True, 20)
        for number, event in enumerate(sent):
            socket.event(f"e{number}", event)
            received, acknowledge = await asyncio.wait_for(anext(coming), 20)
            assert received == event
            if (part := part_of(received, CHANNELS, people)) is not None:
                await save(part)
            await acknowledge()
            assert await asyncio.to_thread(fake.acknowledged.get, True, 20) == f"e{number}"
            if number == drop_after:
                socket.drop()
                socket = await asyncio.to_thread(fake.connections.get, True, 60)


@pytest.mark.slow
async def test_messages_edits_replies_and_deletions_are_followed_across_a_broken_connection(
    fake: FakeSlack, save: Save, workspace: Workspace, loader: Caller, rows: Rows
) -> None:
    def event(**more: Any) -> dict[str, Any]:
        return {"type": "message", "channel": GENERAL, "event_ts": ts_at(1)} | more

    first = ts_at(0, 1)
    sent = [
        event(**said(ADA, first, "The shop is down")),
        event(**said(BOB, ts_at(0, 2), "Hungry")),
        event(**said(BOB, ts_at(0, 3), "I restart it", thread_ts=first)),
        event(subtype="message_changed", message=said(ADA, first, "The <#C0GENERAL> is up", thread_ts=first)),
        event(subtype="message_deleted", deleted_ts=ts_at(0, 2)),
        event(**said(ADA, ts_at(0, 4), "Elsewhere"), channel="C0OTHER"),
        {"type": "reaction_added", "user": ADA},
        event(subtype="channel_join", user=BOB, ts=ts_at(0, 5), text="joined"),
    ]
    await _taken(fake, save, workspace, sent, drop_after=2)
    assert [(row[0], row[1], row[3], row[4]) for row in await rows(loader.user)] == [
        (f"slack/{GENERAL}/{first}", 1, "Ada Lovelace", "The #general is up"),
        (f"slack/{GENERAL}/{first}", 2, "Bob Ross", "I restart it"),
    ]


async def test_a_wrong_token_is_refused(fake: FakeSlack) -> None:
    with pytest.raises(Forbidden, match="invalid_auth"):
        async with events("xapp-another", fake.base_url):
            pass


@pytest.mark.parametrize(
    "event",
    [{}, {"type": "message"}, {"type": "message", "channel": []}, {"type": "message", "channel": GENERAL},
     {"type": "message", "channel": GENERAL, "subtype": "message_changed", "message": 1},
     {"type": "message", "channel": GENERAL, "subtype": "message_deleted", "deleted_ts": 1},
     {"type": "message", "channel": GENERAL, "subtype": "message_deleted", "deleted_ts": "x"}],
)  # fmt: skip
def test_an_odd_event_changes_nothing(event: Mapping[str, Any]) -> None:
    assert part_of(event, CHANNELS, {}) is None


@pytest.mark.slow
async def test_slacks_own_client_understands_the_server_of_the_tests(fake: FakeSlack, workspace: Workspace) -> None:
    """The other tests rely on the server, so a client that we did not write reads the same from it."""
    workspace.fill(GENERAL, 30)
    fake.page = 7
    client = WebClient(BOT, base_url=fake.base_url)

    def whole() -> list[str]:
        return [
            one["ts"] for page in client.conversations_history(channel=GENERAL, limit=7) for one in page["messages"]
        ]

    read = await asyncio.to_thread(whole)
    told = [one for one in workspace.messages[GENERAL] if one.get("thread_ts", one["ts"]) == one["ts"]]
    assert sorted(read) == sorted(one["ts"] for one in told)
    assert read == sorted(read, reverse=True)
