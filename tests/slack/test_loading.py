"""Loading a channel from Slack, and importing it from an export: both store the same."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from openmemory.errors import Forbidden, NotFound, TooMany, Unavailable
from openmemory.identity.caller import Caller
from openmemory.services import Services
from openmemory.slack.export import opened
from openmemory.slack.importing import import_channel
from openmemory.slack.loading import SlackLoaded, load, load_thread
from openmemory.slack.schemas import ChannelPart, Save, SlackSaved, StoredChannel, moment_of
from openmemory.slack.web_api import WebApi
from tests.slack.conftest import Rows
from tests.slack.fake import FakeSlack
from tests.slack.workspace import ADA, BOB, GENERAL, NOON, Workspace, ts_at

LATER = NOON + timedelta(days=5)


async def _known(services: Services, loader: Caller) -> StoredChannel | None:
    stored = await services.slack.channels.stored(loader)
    return next((one for one in stored.channels if one.channel_id == GENERAL), None)


async def _load(services: Services, loader: Caller, slack: WebApi, save: Save, **more: Any) -> SlackLoaded:
    channel = await slack.channel("general")
    return await load(slack, channel, save, stored=await _known(services, loader), **{"now": LATER} | more)


async def test_threads_are_kept_together_and_days_hold_the_rest(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows
) -> None:
    done = await _load(services, loader, slack, save)
    assert (done.saved.added, done.threads, done.skipped) == (7, 1, {"a notice of Slack": 1})
    stored = await rows(loader.user)
    first = ts_at(0, 10)
    assert [(row[0], row[1], row[3], row[4]) for row in stored] == [
        (f"slack/{GENERAL}/{first}", 1, "Ada Lovelace", "Who knows the shop (https://shop.example), @Bob Ross?"),
        (f"slack/{GENERAL}/{first}", 2, "Bob Ross", "I wrote its checkout in Rust."),
        (f"slack/{GENERAL}/{first}", 3, "cleo", "Me too, see #general"),
        (f"slack/{GENERAL}/2026-03-02", 1, "Ada Lovelace", "The shop is deployed on Thursday & Bob watches it."),
        (f"slack/{GENERAL}/2026-03-03", 1, "cleo", "Lunch at the harbour today?"),
        (f"slack/{GENERAL}/2026-03-04", 1, "ci", "Build 812 failed"),
        (f"slack/{GENERAL}/2026-03-04", 2, "Bob Ross", "[file: The plan]"),
    ]  # fmt: skip
    assert stored[1][5] == {
        "slack_channel_name": "general", "slack_channel_id": GENERAL, "slack_real_name": "Bob Ross",
        "slack_user_name": "bob", "slack_user_id": BOB, "message_ts": ts_at(0, 20), "slack_thread_ts": first,
    }  # fmt: skip
    assert stored[1][7] == moment_of(ts_at(0, 20))
    assert stored[0][6] == "general: Who knows the shop (https://shop.example), @Bob Ross?"
    assert stored[3][6] == "general, 2026-03-02"
    assert {row[8] for row in stored if row[0].endswith("-04")} == {2}


@pytest.mark.slow
async def test_an_export_and_a_load_store_the_same(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows, workspace: Workspace, fake: FakeSlack,
    tmp_path: Path,
) -> None:  # fmt: skip
    workspace.fill(GENERAL, 500)
    fake.page = 37
    await _load(services, loader, slack, save, now=NOON + timedelta(days=60))
    other = await services.directory.caller(f"{loader.user}-export", "slack")

    async def keep(part: ChannelPart) -> SlackSaved:
        assert len(part.messages) <= 200
        return await services.slack.channels.save(other, part)

    with opened(workspace.export(tmp_path / "export")) as export:
        [channel] = [one for one in export.channels if one.channel.id == GENERAL]
        saved = await import_channel(export, channel, keep, Counter())
    assert saved.added == 7 + 500 + 25
    assert await rows(other.user) == await rows(loader.user)
    with opened(workspace.export(tmp_path / "again")) as export:
        saved = await import_channel(export, export.channels[0], keep, Counter())
    assert (saved.added, saved.changed, saved.removed, saved.unchanged) == (0, 0, 0, 532)


async def test_edits_deletions_and_new_replies_are_followed(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows, workspace: Workspace
) -> None:
    await _load(services, loader, slack, save)
    again = await _load(services, loader, slack, save)
    assert (again.saved.added, again.saved.changed, again.saved.removed, again.saved.unchanged) == (0, 0, 0, 7)
    workspace.message(GENERAL, ts_at(0, 5))["text"] = "It is deployed on Friday."
    workspace.messages[GENERAL] = [
        one for one in workspace.messages[GENERAL] if one["ts"] not in (ts_at(1, 40), ts_at(0, 20))
    ]
    first = ts_at(2, 50)
    workspace.message(GENERAL, first)["thread_ts"] = first
    workspace.say(GENERAL, ADA, ts_at(2, 70), "I look into it.", thread_ts=first)
    done = await _load(services, loader, slack, save)
    # The edited one, and the first message that moved to its thread.
    assert (done.saved.added, done.saved.changed, done.saved.removed) == (1, 2, 2)
    stored = await rows(loader.user)
    assert [(row[0].rpartition("/")[2], row[1], row[4]) for row in stored] == [
        (ts_at(0, 10), 1, "Who knows the shop (https://shop.example), @Bob Ross?"),
        (ts_at(0, 10), 2, "Me too, see #general"), (first, 1, "Build 812 failed"), (first, 2, "I look into it."),
        ("2026-03-02", 1, "It is deployed on Friday."), ("2026-03-04", 1, "[file: The plan]"),
    ]  # fmt: skip
    assert stored[2][5]["slack_thread_ts"] == first


@pytest.mark.slow
async def test_a_load_that_breaks_goes_on_where_it_was(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows, workspace: Workspace, fake: FakeSlack
) -> None:
    workspace.fill(GENERAL, 1_500)
    parts = 0

    async def failing(part: ChannelPart) -> SlackSaved:
        nonlocal parts
        parts += 1
        if parts == 5:
            raise Unavailable("the service is away")
        return await save(part)

    now = NOON + timedelta(days=60)
    with pytest.raises(Unavailable):
        await _load(services, loader, slack, failing, now=now)
    known = await _known(services, loader)
    assert known is not None
    assert known.through is not None
    assert 0 < known.messages < 1_500
    fake.calls.clear()
    done = await _load(services, loader, slack, save, now=now)
    oldest = [given["oldest"] for method, given in fake.calls if method == "conversations.history"]
    assert moment_of(oldest[0]) == moment_of(known.through) - timedelta(days=7)
    assert done.through is not None
    assert moment_of(done.through) == now
    assert len(await rows(loader.user)) == 7 + 1_500 + 25


async def test_a_load_of_limited_time_says_that_there_is_more(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows
) -> None:
    done = await _load(services, loader, slack, save, seconds=-1.0)
    assert (done.complete, done.saved.added) == (False, 0)
    done = await _load(services, loader, slack, save, seconds=60.0)
    assert (done.complete, done.saved.added) == (True, 7)


@pytest.mark.slow
async def test_throttling_faults_and_broken_cursors_lose_nothing(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows, workspace: Workspace, fake: FakeSlack
) -> None:
    workspace.fill(GENERAL, 120)
    fake.page, fake.break_cursors, fake.throttle, fake.retry_after, fake.fail = 10, 2, 3, "17", 1
    await _load(services, loader, slack, save, now=NOON + timedelta(days=60))
    assert len(await rows(loader.user)) == 7 + 120 + 25
    assert slack.waits[-3:] == [17.0] * 3  # type: ignore[attr-defined]
    assert fake.break_cursors == fake.throttle == fake.fail == 0


async def test_what_slack_refuses_is_told_in_words(
    services: Services, loader: Caller, slack: WebApi, save: Save, fake: FakeSlack
) -> None:
    with pytest.raises(NotFound, match="reaches no channel 'nowhere'"):
        await slack.channel("nowhere")
    channel = await slack.channel("#general")
    for error, kind, words in (
        ("invalid_auth", Forbidden, "rejects the token"), ("missing_scope", Forbidden, "lacks the scope"),
        ("not_in_channel", NotFound, "not_in_channel"), ("fatal_error", Unavailable, "fatal_error"),
        ("<script>", Unavailable, "with an error"),
    ):  # fmt: skip
        fake.refuse = error
        with pytest.raises(kind, match=words):
            await load(slack, channel, save, stored=None, now=LATER)
    fake.refuse, fake.throttle, fake.retry_after = None, 1, "86400"
    with pytest.raises(TooMany) as caught:
        await load(slack, channel, save, stored=None, now=LATER)
    assert caught.value.retry_after == 86_400


async def test_without_private_scopes_the_public_channels_are_listed(slack: WebApi, fake: FakeSlack) -> None:
    assert [(one.name, one.shared) for one in await slack.channels()] == [
        ("dm-bob", False), ("general", True), ("mpdm-ada--bob--cleo-1", False), ("secret", False),
    ]  # fmt: skip
    fake.without_scopes = True
    assert [one.name for one in await slack.channels()] == ["general"]


async def test_one_thread_is_loaded_alone(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows, workspace: Workspace
) -> None:
    first = ts_at(0, 10)
    channel = await slack.channel(GENERAL)
    done = await load_thread(slack, channel, save, first)
    assert (done.saved.added, len(await rows(loader.user))) == (3, 3)
    known = await _known(services, loader)
    assert known is not None
    assert known.through is None  # the rest of the channel is still to be loaded
    workspace.messages[GENERAL].remove(workspace.message(GENERAL, ts_at(1, 30)))
    done = await load_thread(slack, channel, save, first)
    assert (done.saved.removed, done.saved.unchanged) == (1, 2)
    workspace.messages[GENERAL] = [one for one in workspace.messages[GENERAL] if one.get("thread_ts") != first]
    assert (await load_thread(slack, channel, save, first)).saved.removed == 2
    assert await rows(loader.user) == []


async def test_more_days_than_before_are_loaded_without_a_gap(
    services: Services, loader: Caller, slack: WebApi, save: Save, rows: Rows
) -> None:
    done = await _load(services, loader, slack, save, now=LATER, days=3)
    assert done.saved.added == 2
    known = await _known(services, loader)
    assert known is not None
    assert known.since is not None
    assert moment_of(known.since) == LATER - timedelta(days=3)
    await _load(services, loader, slack, save, now=LATER, days=30)
    known = await _known(services, loader)
    assert known is not None
    assert known.since is not None
    assert moment_of(known.since) == LATER - timedelta(days=30)
    assert len(await rows(loader.user)) == 7
