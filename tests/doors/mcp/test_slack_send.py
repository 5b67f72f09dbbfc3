"""The tools that send to Slack: nothing leaves without a setting, a right and the consent of the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client
from mcp_types import ElicitResult

from openmemory.access.schemas import KeyCreate
from openmemory.audit.schemas import AuditAction, AuditQuery
from openmemory.config.sections import SlackSettings
from openmemory.egress.clients import Egress
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from openmemory.slack.sending import SlackSending
from tests.doors.mcp.conftest import ACCEPT, serving
from tests.slack.fake import BOT, FakeSlack, slack_of
from tests.slack.workspace import Workspace

TO = {"to": "general", "text": "The release is *out*."}


@contextmanager
def _sending(services: Services, *, send: bool = True) -> Iterator[tuple[Services, FakeSlack]]:
    with slack_of(Workspace()) as fake:
        settings = SlackSettings.model_validate({"token": BOT, "base_url": fake.base_url, "send": send})
        folder = Path(str(services.settings.data_dir))
        sending = SlackSending(services.slack.channels, settings, services.settings.limits, folder, Egress())
        yield replace(services, slack=services.slack._replace(sending=sending)), fake


async def _called(address: str, user: str, tool: str, _key: str | None = None, **arguments: Any) -> dict[str, Any]:
    headers = ACCEPT if _key is None else {**ACCEPT, "Authorization": f"Bearer {_key}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30) as http:
        result: dict[str, Any] = (await http.post(f"/mcp/claude/http/{user}", json=message)).json()["result"]
    return result


def _words(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def test_messages_and_files_are_sent_once_the_user_has_agreed(services: Services, new_user: str) -> None:
    with _sending(services) as (changed, fake):
        async with serving(changed) as address:
            refused = await _called(address, new_user, "send_slack_message", **TO)
            assert refused["isError"]
            assert "confirm" in _words(refused)
            assert fake.sent == []
            blocks = [{"type": "section", "text": {"type": "mrkdwn", "text": "*out*"}}]
            sent = await _called(address, new_user, "send_slack_message", **TO, blocks=blocks, confirm=True)
            assert sent["structuredContent"]["id"] == "1700000000.000100"
            assert fake.sent[-1]["text"] == TO["text"]
            assert json.loads(fake.sent[-1]["blocks"]) == blocks
            member = next(one for one in fake.workspace.users if one.get("profile", {}).get("email"))
            email = member["profile"]["email"]
            found = await _called(address, new_user, "find_slack_user", email=email)
            assert found["structuredContent"]["id"] == member["id"]
            await _called(address, new_user, "send_slack_message", to=email, text="Hello", confirm=True)
            assert fake.sent[-1]["channel"] == f"D{member['id']}"
            file = {"to": "general", "name": "notes.txt", "content": "Grüße", "comment": "Notes"}
            await _called(address, new_user, "send_slack_file", **file, confirm=True)
            assert fake.uploaded == [(None, "Grüße".encode())]  # the token is for Slack's methods alone
            assert fake.sent[-1]["initial_comment"] == "Notes"
    owner = await services.directory.caller(new_user, None, owner=True)
    events = (await services.audit.read(owner, AuditQuery((AuditAction.SLACK_SEND,)))).events
    assert [event.detail["what"] for event in events if event.detail] == ["file", "message", "message"]


async def test_a_client_that_can_ask_its_user_always_does(services: Services, new_user: str) -> None:
    asked: list[str] = []
    answers = iter(["decline", "accept"])

    async def ask(_: Any, question: Any) -> ElicitResult:
        asked.append(question.message)
        return ElicitResult(action=next(answers), content={})  # type: ignore[arg-type]

    with _sending(services) as (changed, fake):
        async with (
            serving(changed) as address,
            Client(f"{address}/mcp/claude/http/{new_user}", elicitation_callback=ask) as client,
        ):
            for sent in (0, 1):
                await client.call_tool("send_slack_message", {**TO, "confirm": True})
                assert len(fake.sent) == sent
    assert asked == ["Send this message to general in Slack? The release is *out*."] * 2


@pytest.mark.parametrize("why", ["off", "paused", "key"])
async def test_nothing_is_sent_without_the_setting_or_the_right(services: Services, new_user: str, why: str) -> None:
    app = await services.directory.caller(new_user, "claude")
    owner = await services.directory.caller(new_user, None, owner=True)
    key = None
    if why == "paused":
        await services.apps.set_active(owner, app.app_id, False)
    if why == "key":
        key = (await services.keys.create(LOCAL, KeyCreate(name=new_user, user_id=new_user))).key
    with _sending(services, send=why != "off") as (changed, fake):
        async with serving(changed) as address:
            for tool, given in (
                ("send_slack_message", TO | {"confirm": True}),
                ("send_slack_file", {"to": "general", "name": "a", "content": "b", "confirm": True}),
                ("find_slack_user", {"email": "ada@example.com"}),
            ):
                refused = await _called(address, new_user, tool, key, **given)
                assert refused["isError"], tool
        assert fake.calls == []


async def test_a_message_whose_answer_is_lost_is_not_sent_again(services: Services, new_user: str) -> None:
    with _sending(services) as (changed, fake):
        async with serving(changed) as address:
            channel = next(one["id"] for one in fake.workspace.channels if one.get("name") == "general")
            answer = fake.answer

            def lost(method: str, token: str, given: dict[str, str]) -> tuple[int, dict[str, str], dict[str, Any]]:
                done = answer(method, token, given)
                return (503, {}, {"ok": False}) if method == "chat.postMessage" else done

            fake.answer = lost  # type: ignore[method-assign]
            refused = await _called(address, new_user, "send_slack_message", to=channel, text="Once", confirm=True)
            assert refused["isError"]
            assert "may have been carried out" in _words(refused)
            assert [one["text"] for one in fake.sent] == ["Once"]
            fake.answer = answer  # type: ignore[method-assign]
            fake.upload_url = "https://files.example.com"
            file = {"to": channel, "name": "a.txt", "content": "b", "confirm": True}
            assert "not its own" in _words(await _called(address, new_user, "send_slack_file", **file))
            assert fake.uploaded == []
