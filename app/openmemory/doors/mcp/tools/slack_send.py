"""Tools that send to Slack, each after the user has agreed. Offered by the toolset `slack_send`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from mcp_types import ToolAnnotations
from pydantic import BeforeValidator, Field

from openmemory.doors.mcp.compact import inline
from openmemory.doors.mcp.tool import Answer, Arguments, Tool, ToolCall, json_list
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Forbidden, Invalid
from openmemory.identity.caller import Caller
from openmemory.services import Services
from openmemory.slack.schemas import APP, SLACK_BOT

_SHOWN = 300
"""The characters of a text that the question to the user shows."""


class FindUserArguments(Arguments):
    email: str


class SendArguments(Arguments):
    to: str = Field(description="A channel, or the e-mail address or id of a user.")
    confirm: bool = Field(False, description="true, once the user has agreed.")


class SendMessageArguments(SendArguments):
    text: str = Field(description="In Slack's markup.")
    blocks: Annotated[list[dict[str, Any]] | None, BeforeValidator(json_list)] = Field(None, description="Block Kit.")


class SendFileArguments(SendArguments):
    name: str
    content: str
    comment: str | None = None


async def _find(services: Services, call: ToolCall[FindUserArguments]) -> Answer:
    user = await services.slack.sending.user(_sender(call.caller), call.arguments.email)
    untrusted = Untrusted(services.settings.capture.injection)
    name = untrusted.name(user.name)
    return Answer([f"{user.id} {inline(name)}"], {"id": user.id, "name": name}, untrusted.note())


async def _message(services: Services, call: ToolCall[SendMessageArguments]) -> Answer:
    arguments = call.arguments
    caller = _sender(call.caller)
    if not await _user_agrees(call, "message", arguments.text):
        return _text_answer("Nothing was sent: the user did not agree.")
    result = await services.slack.sending.message(caller, arguments.to, arguments.text, arguments.blocks)
    return _text_answer(f"Sent to {inline(arguments.to)}.", asdict(result))


async def _file(services: Services, call: ToolCall[SendFileArguments]) -> Answer:
    arguments = call.arguments
    caller = _sender(call.caller)
    if not await _user_agrees(call, f"file {inline(arguments.name)[:80]}", arguments.content):
        return _text_answer("Nothing was sent: the user did not agree.")
    result = await services.slack.sending.file(
        caller, arguments.to, arguments.name, arguments.content, arguments.comment
    )
    return _text_answer(f"Sent to {inline(arguments.to)}.", asdict(result))


async def _user_agrees(call: ToolCall[Any], what: str, text: str) -> bool:
    """Returns True if the user agrees. A client that can ask its user always does, whatever `confirm` says.

    Raises:
        Invalid: the client cannot ask, and the call does not say that the user has agreed.
    """
    line = inline(text)
    excerpt = line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
    if call.ask is not None:
        return await call.ask(f"Send this {what} to {inline(call.arguments.to)[:200]} in Slack? {excerpt}")
    if not call.arguments.confirm:
        raise Invalid(
            "confirm", "nothing was sent", code="not_confirmed",
            hint="Show the user the recipient and the text, and call again with confirm=true if they agree.",
        )  # fmt: skip
    return True


def _sender(caller: Caller) -> Caller:
    """Returns the caller, if the credential speaks for the user of the token of the service, too. Makes no user or app.

    Raises:
        Forbidden: it does not.
    """
    try:
        caller.principal.claimed_user(SLACK_BOT)
        caller.principal.claimed_app(APP)
    except Forbidden as error:
        raise Forbidden(f"Only who speaks for {SLACK_BOT} sends to Slack.", code=error.code) from None
    return caller


def _text_answer(text: str, data: dict[str, Any] | None = None) -> Answer:
    return Answer([text], data or {"sent": False}, text=text)


_SENDS = ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=True)

TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "find_slack_user", "Find a Slack user", "Find a member of the Slack workspace by e-mail address.",
        FindUserArguments, ToolAnnotations(read_only_hint=True),
        _find, "Error finding Slack user", toolset="slack_send",
    ),
    Tool(
        "send_slack_message", "Send a Slack message",
        "Send a message to a channel or a user of Slack. Only when the user asks for that.",
        SendMessageArguments, _SENDS, _message, "Error sending Slack message", toolset="slack_send",
    ),
    Tool(
        "send_slack_file", "Send a file to Slack",
        "Send a text as a file to a channel or a user of Slack. Only when the user asks for that.",
        SendFileArguments, _SENDS, _file, "Error sending file to Slack", toolset="slack_send",
    ),
)  # fmt: skip
"""The tools that send to Slack."""
