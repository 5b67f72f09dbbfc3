"""The tool that lists facts that disagree. Offered by the toolset `review`."""

from __future__ import annotations

from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel

from openmemory.mcp.compact import inline
from openmemory.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall
from openmemory.mcp.untrusted import Untrusted
from openmemory.operations.tidying import list_conflicts
from openmemory.serialization.zones import day_shown
from openmemory.services import Services

_PAGE = 10
"""Conflicts on a page."""


class ListConflictsArguments(Arguments):
    page: int = 1


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
    found = await list_conflicts(services, call.caller, page=page, size=_PAGE)
    ids = [fact.memory.id for one in found.items for fact in one.facts]
    short = await services.short_ids.shortened(call.caller, list(dict.fromkeys(ids)))
    untrusted, zone = Untrusted(services.settings.capture.injection), call.caller.timezone
    conflicts, lines = [], []
    for one in found.items:
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
    if found.total > page * _PAGE:
        lines.append(f"{found.total} in all; page {page + 1} has more.")
    output = ConflictListOutput(conflicts=conflicts, total=found.total).model_dump(mode="json")
    return Answer(lines or ["No facts disagree."], output, untrusted.note())


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_conflicts", "List conflicts", "List facts that disagree, for the user to decide.",
        ListConflictsArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error listing conflicts", toolset="review",
    ),
)  # fmt: skip
