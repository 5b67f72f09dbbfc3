"""Tools for channels of Slack: load and search them. Offered by the toolset `slack`."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import Field

from openmemory.doors.mcp.compact import block, inline
from openmemory.doors.mcp.tool import Answer, Arguments, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Forbidden, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.memories import validation
from openmemory.serialization.zones import day_shown
from openmemory.services import Services
from openmemory.slack.loading import SlackLoaded
from openmemory.slack.schemas import APP, SLACK_BOT, moment_of
from openmemory.slack.searching import SlackQuery


class LoadChannelArguments(Arguments):
    channel_name: str
    days: int | None = Field(None, description="At least the last days; left out: what is new, at first all.")
    include_threads: bool = True


class SearchChannelsArguments(Arguments):
    query: str = Field(description="A question, or keywords.")
    channel: str | None = None
    limit: int = 10


async def _load(services: Services, call: ToolCall[LoadChannelArguments]) -> Answer:
    arguments = call.arguments
    if arguments.days is not None:
        validation.between(arguments.days, "days", 1, 36_500)
    try:
        bot = await services.directory.app_caller(call.caller.principal, SLACK_BOT, APP)
    except Forbidden as error:
        hint = "Ask an administrator to load the channel, or load it for yourself: `openmemory slack load --mine`."
        raise Forbidden(f"Public channels belong to the user {SLACK_BOT}.", code=error.code, hint=hint) from None
    result = await services.slack.shared.load(
        bot, arguments.channel_name, asks=call.caller, days=arguments.days, threads=arguments.include_threads
    )
    statistics = _statistics(result)
    lines = [
        f"{inline(result.channel)}: {', '.join(f'{count} {name}' for name, count in statistics.items() if count)}"
        if any(statistics.values())
        else f"{inline(result.channel)}: nothing is new."
    ]
    note = None if result.complete else "There is more: call load_slack_channel again, which goes on from here."
    return Answer(lines, {"status": "success", "channel": result.channel, "statistics": statistics}, note)


def _statistics(result: SlackLoaded) -> dict[str, int]:
    numbers = asdict(result.saved) | {"refused": len(result.saved.refused)}
    return numbers | {"threads": result.threads, "skipped": sum(result.skipped.values())}


async def _search(services: Services, call: ToolCall[SearchChannelsArguments]) -> Answer:
    arguments = call.arguments
    limit = validation.between(arguments.limit, "limit", 1, 100)
    channel = arguments.channel and arguments.channel.strip().removeprefix("#")
    query = SlackQuery(arguments.query, channel or None, limit=limit)
    answer = await services.slack.searching.search(await _readers(services, call.caller), query)
    untrusted = Untrusted(services.settings.capture.injection)
    results, lines = list[dict[str, Any]](), list[str]()
    for one in answer.results:
        content = untrusted.text(one.content, one.labels)
        place, user = untrusted.name(one.channel), untrusted.name(one.user)
        results.append(
            {
                "id": one.id, "content": content, "channel": place, "user": user, "timestamp": one.timestamp,
                "score": one.score,
            }
        )  # fmt: skip
        moment = moment_of(one.timestamp) if one.timestamp else datetime.fromtimestamp(0, UTC)
        lines.append(f"#{inline(place)} {day_shown(moment, call.caller.timezone)} {inline(user)}: {block(content)}")
    data = {
        "results": results, "query": answer.query, "channel_filter": answer.channel_filter,
        "search_method": answer.search_method,
    }  # fmt: skip
    return Answer(lines or ["No message matches."], data, untrusted.note(answer.note))


async def _readers(services: Services, caller: Caller) -> list[Caller]:
    """Returns the caller, and the user of the public channels if the credential speaks for that user too."""
    principal = caller.principal
    if caller.user == SLACK_BOT or principal.user not in (None, SLACK_BOT):
        return [caller]
    reading = replace(principal, scopes=principal.scopes & {Scope.READ})  # a search makes no app
    try:
        await services.directory.existing(SLACK_BOT, principal=reading)
    except NotFound:
        return [caller]
    return [caller, await services.directory.caller(SLACK_BOT, caller.app, principal=reading)]


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "load_slack_channel", "Load a Slack channel",
        "Load a public channel of Slack, or what is new in it, so that it can be searched.",
        LoadChannelArguments, ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
        _load, "Error loading Slack channel", toolset="slack",
    ),
    Tool(
        "search_slack_channels", "Search Slack channels",
        "Find what was said in the channels of Slack that were loaded.",
        SearchChannelsArguments, ToolAnnotations(read_only_hint=True),
        _search, "Error searching Slack channels", toolset="slack",
    ),
)  # fmt: skip
"""The tools for channels of Slack."""
