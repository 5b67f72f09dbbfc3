"""Channels as they are stored, found and forgotten, and who may read them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from openmemory.access.schemas import GrantCreate
from openmemory.errors import Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import LOCAL, Scope
from openmemory.services import Services
from openmemory.slack.schemas import ChannelPart, Save, SlackMessage, moment_of, ts_of
from openmemory.slack.searching import SlackQuery
from tests.slack.conftest import Rows
from tests.slack.workspace import GENERAL, SECRET, ts_at


def _part(*said: SlackMessage, channel: str = "general", id_: str = GENERAL, **more: Any) -> ChannelPart:
    return ChannelPart(channel, id_, list(said), **more)


def _said(number: int, text: str, **more: Any) -> SlackMessage:
    return SlackMessage(ts_at(number), text, user_id="U0ADA", user_name="ada", **more)


def test_a_ts_is_a_time_and_back() -> None:
    for ts in ("0.000001", "1767258000.000100", "99999999999.999999"):
        assert ts_of(moment_of(ts)) == ts


async def test_messages_are_found_by_meaning_in_their_channel_by_author_and_time(
    services: Services, loader: Caller, save: Save, eventually: Callable[..., Awaitable[None]]
) -> None:
    await save(
        _part(
            _said(0, "The shop is written in Rust."),
            SlackMessage(ts_at(1), "We deploy on Thursdays.", user_id="U0BOB", real_name="Bob Ross"),
        )
    )
    await save(_part(_said(2, "The shop sells Rust remover."), channel="garden", id_="C0GARDEN"))

    async def found(text: str, **more: Any) -> list[tuple[str, str]]:
        answer = await services.slack.searching.search([loader], SlackQuery(text, **more))
        return [(one.channel, one.content) for one in answer.results]

    async def by_meaning() -> bool:
        return (await found("which programming language?"))[:1] == [("general", "The shop is written in Rust.")]

    await eventually(by_meaning, within=60.0)
    assert await found("Rust", channel="#garden") == [("garden", "The shop sells Rust remover.")]
    deploy = [("general", "We deploy on Thursdays.")]
    for author in ("bob ross", "Bob Ross", "U0BOB", "@u0bob"):
        assert await found("when do we deploy?", author=author) == deploy
    assert await found("Rust", author="nobody") == []
    for author in ("", "\x00", "a\ud800"):
        with pytest.raises(Invalid, match="author"):
            await found("Rust", author=author)
    assert await found("Rust or deploy", before=moment_of(ts_at(1)), after=moment_of(ts_at(1))) == deploy
    answer = await services.slack.searching.search([loader], SlackQuery("Rust", channel="nowhere"))
    assert answer.note is not None
    assert answer.note.startswith("No channel that you may read")


async def test_a_private_channel_is_never_found_by_another_user(services: Services, save: Save, new_user: str) -> None:
    await save(_part(_said(0, "Project Walrus is the merger with Initech."), channel="secret", id_=SECRET))
    for name, owner in ((f"{new_user}-2", True), (f"{new_user}-3", False), ("slack-bot", True)):
        other = await services.directory.caller(name, None if owner else "slack", owner=owner)
        answer = await services.slack.searching.search([other], SlackQuery("Project Walrus merger Initech"))
        assert [one for one in answer.results if "Walrus" in one.content] == []
        assert "secret" not in [one.channel for one in (await services.slack.channels.stored(other)).channels]
        with pytest.raises((NotFound, Forbidden)):
            await services.slack.channels.forget(other, "secret")
        # The same ids of another user are other rows.
        saved = await services.slack.channels.save(
            replace(other, owner=False), _part(channel="secret", id_=SECRET, after="0.000000", until=ts_at(9))
        )
        assert saved.removed == 0


async def test_an_app_reads_channels_by_its_rules(services: Services, owner: Caller, save: Save) -> None:
    await save(_part(_said(0, "The budget is 900 euros."), channel="money", id_="C0MONEY"))
    cursor = await services.directory.caller(owner.user, "cursor")
    query = SlackQuery("What is the budget?")
    assert (await services.slack.searching.search([cursor], query)).results != []
    rule = GrantCreate(effect="deny", object_type="namespace", object="slack/money", app="cursor")
    await services.grants.create(owner, rule)
    assert (await services.slack.searching.search([cursor], query)).results == []
    assert (await services.slack.channels.stored(cursor)).channels == []
    assert await services.slack.channels.speakers(cursor, "ada") == []
    with pytest.raises(Forbidden):
        await services.slack.channels.forget(cursor, "money")


async def test_a_credential_for_other_namespaces_reads_and_writes_no_channel(
    services: Services, loader: Caller, save: Save
) -> None:
    await save(_part(_said(0, "The budget is 900 euros.")))
    bounded = replace(loader, principal=replace(LOCAL, namespaces=("shop",), scopes=frozenset(Scope)))
    assert (await services.slack.channels.stored(bounded)).channels == []
    assert (await services.slack.searching.search([bounded], SlackQuery("budget"))).results == []
    with pytest.raises(Forbidden):
        await services.slack.channels.save(bounded, _part(_said(1, "x")))


async def test_secrets_are_replaced_and_what_cannot_be_stored_is_named(
    services: Services, save: Save, loader: Caller, rows: Rows
) -> None:
    key = "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9aB3dE5gH7jK9mN1pQ3sT5vW7yZ9"
    done = await save(_part(_said(0, f"The key is {key}"), _said(1, "x" * 16_001), _said(2, "Hello")))
    assert (done.added, done.redacted, [one.ts for one in done.refused]) == (2, 1, [ts_at(1)])
    assert "limits.text" in done.refused[0].detail
    stored = await rows(loader.user)
    assert [row[2] for row in stored] == [ts_at(0), ts_at(2)]
    assert key not in str(stored)
    # The stored text of a message stays if its new one cannot be stored, also where the channel is complete.
    await save(_part(_said(2, "y" * 16_001), after=ts_at(1), until=ts_at(3)))
    assert [row[4] for row in await rows(loader.user)][-1] == "Hello"


async def test_a_part_that_is_sent_twice_at_once_is_stored_once(save: Save, loader: Caller, rows: Rows) -> None:
    messages = [_said(number // 3, f"Message {number}", real_name=f"{number % 2}") for number in range(9)]
    messages = [replace(one, ts=ts_at(number // 3, number)) for number, one in enumerate(messages)]
    done = await asyncio.gather(*(save(_part(*messages, *messages[:3])) for _ in range(5)))
    assert sum(one.added for one in done) == 9
    stored = await rows(loader.user)
    assert [(row[0][-10:], row[1]) for row in stored] == [
        (f"2026-03-0{2 + day}", position) for day in range(3) for position in (1, 2, 3)
    ]


async def test_a_channel_is_forgotten_with_all_that_it_has(
    services: Services, owner: Caller, save: Save, rows: Rows, eventually: Callable[..., Awaitable[None]]
) -> None:
    await save(_part(_said(0, "One"), _said(1, "Two", thread_ts=ts_at(1)), since=ts_at(0), until=ts_at(2)))
    await save(_part(_said(0, "Green", real_name="Eve"), channel="garden", id_="C0GARDEN"))
    [garden, general] = (await services.slack.channels.stored(owner)).channels
    assert (garden.channel, garden.messages, garden.through) == ("garden", 1, None)
    assert (general.messages, general.since, general.through) == (2, ts_at(0), ts_at(2))
    assert (general.oldest, general.newest) == (moment_of(ts_at(0)), moment_of(ts_at(1)))
    assert (await services.slack.channels.forget(owner, "#general")).messages == 2
    assert [row[4] for row in await rows(owner.user)] == ["Green"]
    assert [one.channel for one in (await services.slack.channels.stored(owner)).channels] == ["garden"]
    with pytest.raises(NotFound):
        await services.slack.channels.forget(owner, "general")


@pytest.mark.parametrize("name", ["", " ", "#", "a/b", "a\nb", "x" * 300, "a\ud800"])
async def test_a_name_that_no_channel_has_is_refused(save: Save, name: str) -> None:
    with pytest.raises(Invalid, match="channel"):
        await save(_part(channel=name))
