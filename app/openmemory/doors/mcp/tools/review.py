"""Tools with which a user looks after the memory: facts that disagree, and the use of tools. The toolset `review`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import inline
from openmemory.doors.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.operations.activity import tool_usage
from openmemory.operations.tidying import list_conflicts
from openmemory.serialization.zones import day_shown
from openmemory.services import Services

_PAGE = 10
"""Conflicts on a page."""


class ListConflictsArguments(Arguments):
    page: int = 1


class ToolUsageArguments(Arguments):
    namespace: str | None = Field(None, description="Only this project.")
    days: int = 30


class DisagreeingFact(BaseModel):
    id: Id
    value: str
    app_name: str
    created_at: Time


class ListedConflict(BaseModel):
    key: str
    namespace: str
    facts: list[DisagreeingFact]
    more: int


class ConflictListOutput(BaseModel):
    conflicts: list[ListedConflict]
    total: int


async def _list(services: Services, call: ToolCall[ListConflictsArguments]) -> Answer:
    page = call.arguments.page
    conflict_page = await list_conflicts(services, call.caller, page=page, size=_PAGE)
    ids = [fact.memory.id for one in conflict_page.items for fact in one.facts]
    short = await services.short_ids.shortened(call.caller, list(dict.fromkeys(ids)))
    untrusted, zone = Untrusted(services.settings.capture.injection), call.caller.timezone
    conflicts, lines = [], []
    for one in conflict_page.items:
        facts = [
            DisagreeingFact(
                id=fact.memory.id,
                value=untrusted.text(fact.value, fact.memory.labels),
                app_name=untrusted.name(fact.memory.app_name),
                created_at=fact.memory.created_at,
            )
            for fact in one.facts
        ]
        key, namespace = untrusted.name(one.key), untrusted.name(one.namespace)
        conflicts.append(ListedConflict(key=key, namespace=namespace, facts=facts, more=one.more))
        where = "" if one.namespace == "default" else f" [namespace {inline(namespace)}]"
        values = [
            f"{inline(fact.value)} ({short[fact.id]} {day_shown(fact.created_at, zone)} {inline(fact.app_name)})"
            for fact in facts
        ]
        more = [f"{one.more} more"] if one.more else []
        lines.append(f"{inline(key)}{where}: {'; '.join(values + more)}")
    if conflict_page.total > page * _PAGE:
        lines.append(f"{conflict_page.total} in all; page {page + 1} has more.")
    output = ConflictListOutput(conflicts=conflicts, total=conflict_page.total).model_dump(mode="json")
    return Answer(lines or ["No facts disagree."], output, untrusted.note())


async def _usage(services: Services, call: ToolCall[ToolUsageArguments]) -> Answer:
    arguments = call.arguments
    usage = await tool_usage(services, call.caller, namespace=arguments.namespace, days=arguments.days)
    untrusted = Untrusted(services.settings.capture.injection)
    rows = [asdict(one) | {"app_name": untrusted.name(one.app_name)} for one in usage.tools]
    lines = [
        f"{row['tool']} ({inline(row['app_name'])}): {row['calls']:,} calls, {row['items']:,} results,"
        f" {row['used']:,} tokens given, {row['saved']:,} saved"
        for row in rows
    ]
    return Answer(lines or ["No tool was called."], {"total": asdict(usage.total), "tools": rows}, untrusted.note())


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_conflicts", "List conflicts", "List facts that disagree, for the user to decide.",
        ListConflictsArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error listing conflicts", toolset="review",
    ),
    Tool(
        "tool_usage", "Count calls of tools", "Count the calls of tools, their results and tokens, by app.",
        ToolUsageArguments, ToolAnnotations(read_only_hint=True),
        _usage, "Error counting calls", toolset="review",
    ),
)  # fmt: skip
