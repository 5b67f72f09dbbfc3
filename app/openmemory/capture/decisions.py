"""Decides which operations of a language model's answer to apply, and why to refuse the others. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from openmemory.capture.answers import MAX_OPERATIONS, Edit
from openmemory.capture.prompt import KINDS
from openmemory.capture.schemas import Decision, ModelDecisions, PromptMemory, Refusal
from openmemory.dedup.spelling import Spelling, spelling
from openmemory.memories.schemas import Event

_EVENTS = {"ADD": Event.ADD, "UPDATE": Event.UPDATE, "SUPERSEDE": Event.SUPERSEDE, "DELETE": Event.DELETE}
_WORDS = {
    "known": "It is remembered already.",
    "junk": "It is not about the user or their projects, or of no use later.",
    "secret": "It looks like a secret.",
    "repeats": "It repeats a memory.",
    "repeated_id": "Another operation is about the same memory.",
    "unknown_id": "No memory of this number was shown.",
    "too_many": f"More than {MAX_OPERATIONS} operations.",
    "invalid": "The operation is not one that can be done.",
    "injection": "The text reads like orders to an assistant: it changes nothing that is remembered already.",
}


def decided(
    operations: Sequence[Edit],
    memories: Sequence[PromptMemory],
    now: datetime,
    *,
    orders: bool = False,
    emotion: bool = False,
) -> ModelDecisions:
    """The changes to make. `memories` are those that the model was shown, numbered from 1.

    `orders`: the input looks like a prompt injection, so it must not change any existing memory.
    `emotion`: True if the model was asked for the user's emotion.
    """
    result = ModelDecisions()
    by_spelling: dict[Spelling, PromptMemory | None] = {spelling(memory.content): memory for memory in memories}
    about: set[int] = set()
    for operation in operations[:MAX_OPERATIONS]:
        memory = _memory(operation, memories)
        if (reason := _refusal_reason(operation, memory, about, orders=orders)) is not None:
            result.refused.append(refusal(reason, operation.text, memory, operation.reason))
            continue
        if operation.op == "NONE":
            _nothing(result, operation, memory)
            continue
        if operation.number is not None:
            about.add(operation.number)
        event, plain = _EVENTS[operation.op], spelling(operation.text)
        if event is not Event.DELETE and plain in by_spelling:
            match = by_spelling[plain]
            if event is not Event.SUPERSEDE or match is memory:
                # Text that was read back from memory is not stored again: this memory already says it.
                _refuse_repeated(result, operation, match)
                continue
        elif event is not Event.DELETE:
            by_spelling[plain] = None
        decision = _decision(event, operation, memory, now)
        result.decisions.append(replace(decision, emotion=operation.emotion) if emotion else decision)
    if len(operations) > MAX_OPERATIONS:
        result.refused.append(refusal("too_many"))
    return result


def refusal(
    reason: str, text: str = "", memory: PromptMemory | None = None, model_reason: str | None = None
) -> Refusal:
    """The reason why an operation is refused. A secret is not repeated. `model_reason`: the model's own words."""
    memory_text = None if reason == "secret" else text or None
    detail = _WORDS.get(reason, reason) + (
        f" ({model_reason})" if model_reason and model_reason.lower() != reason else ""
    )
    return Refusal(memory=memory_text, id=memory.id if memory else None, reason=reason, detail=detail)


def _memory(operation: Edit, memories: Sequence[PromptMemory]) -> PromptMemory | None:
    number = operation.number
    return memories[number - 1] if number is not None and 1 <= number <= len(memories) else None


def _refusal_reason(operation: Edit, memory: PromptMemory | None, about: set[int], *, orders: bool) -> str | None:
    if operation.op == "NONE":
        return None
    if operation.op not in _EVENTS or (not operation.text and operation.op != "DELETE"):
        return "invalid"
    if operation.op == "ADD":
        return None
    if memory is None:
        return "unknown_id"
    if operation.number in about:
        return "repeated_id"
    return "injection" if orders else None


def _nothing(result: ModelDecisions, operation: Edit, memory: PromptMemory | None) -> None:
    reason = (operation.reason or "").lower()
    reason = reason if reason in ("junk", "secret") else "known" if memory is not None else "junk"
    if memory is not None and reason == "known":
        result.decisions.append(Decision(Event.NONE, memory, memory.content))
    elif operation.text or operation.reason:
        result.refused.append(refusal(reason, operation.text, memory, operation.reason))


def _refuse_repeated(result: ModelDecisions, operation: Edit, match: PromptMemory | None) -> None:
    result.refused.append(refusal("repeats", operation.text, match))
    if match is not None:
        result.decisions.append(Decision(Event.NONE, match, match.content))


def _decision(event: Event, operation: Edit, memory: PromptMemory | None, now: datetime) -> Decision:
    until = operation.until
    return Decision(
        event=event,
        memory=memory,
        text=operation.text,
        categories=operation.categories[:3],
        kind=operation.kind if operation.kind in KINDS else None,
        importance=None if operation.importance is None else min(10, max(1, operation.importance)),
        since=operation.since,
        # A fact that had already ended when it was stated stays visible; an end in the past would hide it.
        until=until if until is not None and until > now else None,
        message=operation.message,
    )
