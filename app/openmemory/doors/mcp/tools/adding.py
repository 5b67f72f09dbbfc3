"""The tool that adds memories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.capture.schemas import Added, CaptureCreate
from openmemory.doors.mcp.compact import block, inline, shorten
from openmemory.doors.mcp.pairs import ChangedPair, changed_pairs
from openmemory.doors.mcp.progress import Steps
from openmemory.doors.mcp.tool import Answer, Arguments, Id, JsonObject, Strings, Time, Tool, ToolCall, absent
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.memories.schemas import Event, MemoryCreate
from openmemory.serialization.timestamps import DateOrTime
from openmemory.serialization.zones import day_shown
from openmemory.services import Services


class AddArguments(Arguments):
    text: str = Field(description="In sentences that stand alone.")
    infer: bool = Field(True, description="false: store verbatim.")
    about: str | None = Field(None, description="person: of no project.")
    namespace: str | None = None
    categories: Strings = Field(default_factory=list)
    kind: str | None = Field(None, description="Such as preference or decision.")
    thread_id: str | None = None
    key: str | None = None
    metadata: JsonObject = Field(default_factory=dict)
    ttl_days: int | None = Field(None, description="Days until it expires.")
    expires_at: DateOrTime | None = None

    supersedes: Strings = Field(default_factory=list, description="Ids of what no longer holds.")

    def input(self, namespace: str, supersedes: Sequence[UUID]) -> CaptureCreate:
        """Returns the input of the service. `supersedes`: the memories that are meant."""
        names = type(self).model_fields.keys() - {"infer", "about", "namespace", "categories", "supersedes"}
        fields = {name: value for name in names if (value := getattr(self, name)) is not None}
        new = MemoryCreate(categories=tuple(self.categories), namespace=namespace, **fields)
        return CaptureCreate(new, wait=True, supersedes=tuple(supersedes))


class AddedMemory(BaseModel):
    id: Id
    memory: str
    event: Event
    previous_memory: str | None = Field(None, exclude_if=absent)
    changed: list[ChangedPair] | None = Field(None, exclude_if=absent)


class NotAdded(BaseModel):
    reason: str
    memory: str | None = None
    detail: str | None = None


class PossiblySame(BaseModel):
    id: Id
    memory: str
    likeness: float


class MayChange(BaseModel):
    id: Id
    memory: str
    created_at: Time
    replaced: bool


class AddResult(BaseModel):
    results: list[AddedMemory]
    near: list[MayChange] | None = Field(None, exclude_if=absent)
    possible_duplicates: list[PossiblySame] | None = Field(None, exclude_if=absent)
    refused: list[NotAdded] | None = Field(None, exclude_if=absent)
    capture_id: Id | None = Field(None, exclude_if=absent)


class _AssistantTexts:
    """Returns texts as an assistant sees them. The text that it just sent is unchanged; any other may come from
    somebody else."""

    def __init__(self, services: Services, text: str) -> None:
        self.untrusted = Untrusted(services.settings.capture.injection)
        self._labels = services.memories.intake.labels
        self._text = text

    def text(self, text: str) -> str:
        return text if text == self._text else self.untrusted.text(text, self._labels(text, {}))

    def optional(self, text: str | None) -> str | None:
        return text and self.text(text)


async def _add(services: Services, call: ToolCall[AddArguments]) -> Answer:
    text = call.arguments.text
    supersedes = await services.short_ids.resolved(call.caller, call.arguments.supersedes, "supersedes")
    namespace = call.offer.project.target(call.arguments.namespace, call.arguments.about)
    new = call.arguments.input(namespace, supersedes)
    outcome = await services.adding.add(call.caller, new, infer=call.arguments.infer, moved=Steps().report)
    texts = _AssistantTexts(services, text)
    result = _result(outcome, texts)
    ids = [one.id for one in (*result.results, *(result.near or ()), *(result.possible_duplicates or ()))]
    short = await services.short_ids.shortened(call.caller, ids)
    lines = list(_lines(result, short, text, call.caller.timezone, call.offer.project.format_target(namespace)))
    if not lines and outcome.note is None:
        lines = ["Nothing to remember was found in it."]
    return Answer(lines, result.model_dump(mode="json"), texts.untrusted.note(outcome.note))


def _result(outcome: Added, texts: _AssistantTexts) -> AddResult:
    memories = [
        AddedMemory(
            id=one.id,
            memory=texts.text(one.memory),
            event=one.event,
            previous_memory=texts.optional(one.previous_memory),
            changed=changed_pairs(outcome.changed, texts.untrusted) or None,
        )
        for one in outcome.results
    ]
    possible = [
        PossiblySame(id=one.id, memory=texts.text(one.memory), likeness=one.likeness)
        for one in outcome.possible_duplicates
    ]
    rejections = [
        NotAdded(reason=one.reason, memory=texts.optional(one.memory), detail=texts.optional(one.detail))
        for one in outcome.refused
    ]
    near = [
        MayChange(id=one.id, memory=texts.text(one.memory), created_at=one.created_at, replaced=one.replaced)
        for one in outcome.near
    ]
    return AddResult(
        results=memories,
        near=near or None,
        possible_duplicates=possible or None,
        refused=rejections or None,
        capture_id=outcome.capture_id,
    )


def _lines(result: AddResult, short: dict[Any, str], input_text: str, zone: ZoneInfo, where: str) -> Iterable[str]:
    """Yields the compact form. A text that the assistant just sent is not repeated."""
    for one in result.results:
        text = "" if one.memory == input_text else f": {block(one.memory)}"
        yield f"{one.event} {short[one.id]}{where}{text}"
        if one.previous_memory is not None:
            yield f"before: {block(one.previous_memory)}"
    for near in result.near or ():
        yield f"Near: {short[near.id]}, {day_shown(near.created_at, zone)}: {shorten(near.memory)}"
    if result.near:
        yield "If one no longer holds, add again with supersedes."
    for same in result.possible_duplicates or ():
        yield f"similar {short[same.id]}: {block(same.memory)}"
    for rejection in result.refused or ():
        reason = inline(" ".join(part for part in (rejection.reason, rejection.detail) if part))
        yield f"not remembered ({reason}){'' if rejection.memory is None else f': {block(rejection.memory)}'}"


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "add_memories", "Remember",
        "Remember something for later conversations: a preference, fact, decision or plan of the user, or what they ask"
        " you to. One self-contained statement per call; no secrets.",
        AddArguments,
        ToolAnnotations(read_only_hint=False, destructive_hint=False),
        _add, "Error adding to memory",
    ),
)  # fmt: skip
