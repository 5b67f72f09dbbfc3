"""Applies decisions: each change with its history, access rules and outbox entry, all in one transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exc, func, select

from openmemory.access.apps import refuse_if_paused
from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.capture.decisions import refusal
from openmemory.capture.schemas import Decision, ModelDecisions, PromptMemory, Refusal, Turn
from openmemory.database.engine import Tx
from openmemory.errors import ConflictError, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle import superseding
from openmemory.memories.lifecycle.superseding import WRITTEN_AT
from openmemory.memories.models import Memory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.memories.schemas import Event, MemoryCreate, MemoryUpdate
from openmemory.memories.state import State

log = logging.getLogger(__name__)

EMOTION = "emotion"
"""The metadata key for the user's emotion about a memory."""

MESSAGE = "message"
"""The metadata key for the number of a message in the memory's thread: the source of the memory."""


@dataclass(slots=True)
class Applied:
    """The changes made, in order: `operations` as they are stored, with the earlier state of each memory."""

    operations: list[dict[str, Any]] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)

    @property
    def memory_ids(self) -> list[UUID]:
        """The ids of all memories that an operation or a refusal refers to."""
        return sorted(touched(self.operations) | {each.id for each in self.refused if each.id is not None})

    @property
    def change_count(self) -> int:
        """The number of changes made."""
        return sum(each["event"] != Event.NONE for each in self.operations)


@dataclass(frozen=True, slots=True)
class Applying:
    """Carries out the decisions of one capture for its caller.

    `like`: the fields that all new memories share. `at`: the time when the input was said, which new memories and
    revisions get. A memory that was said later is neither changed nor replaced. `verbatim`: the memories that hold the
    input. `turns`: the messages of the input, if it is a conversation.
    """

    tx: Tx
    caller: Caller
    intake: Intake
    like: MemoryCreate
    at: datetime
    verbatim: frozenset[UUID] = frozenset()
    turns: Sequence[Turn] = ()

    async def all(self, decided: ModelDecisions) -> Applied:
        """Applies the decisions. Each change is made completely or not at all.

        Raises:
            Forbidden: the app was paused in the meantime.
        """
        await refuse_if_paused(self.tx, self.caller)
        applied = Applied(refused=list(decided.refused))
        for decision in decided.decisions:
            try:
                async with self.tx.begin_nested():
                    applied.operations.append(await self._one(decision) | self._source_of(decision))
            except (Invalid, NotFound, ConflictError) as error:
                reason = {"secret_refused": "secret", "injection_refused": "injection"}.get(error.code, error.code)
                entry = refusal(reason, decision.text, decision.memory)
                applied.refused.append(entry.model_copy(update={"detail": error.message}))
            except exc.DataError:  # a value that PostgreSQL cannot store must not cost the others
                log.exception("an operation of a language model cannot be stored")
                applied.refused.append(refusal("invalid"))
        return applied

    def _message(self, decision: Decision) -> int | None:
        """The number of the message that a decision is from, in the input. A single message needs no number."""
        number = 1 if len(self.turns) == 1 else decision.message
        return number if number is not None and 1 <= number <= len(self.turns) else None

    def _position(self, decision: Decision) -> int | None:
        """The place of that message in its stored thread. None: it is part of none."""
        number = self._message(decision)
        return None if number is None else self.turns[number - 1].position

    def _source_of(self, decision: Decision) -> dict[str, int]:
        """The message that a decision is from, as results name it: its place in its thread, or else in the input."""
        number, position = self._message(decision), self._position(decision)
        place = number if position is None else position
        return {} if place is None else {"message": place}

    async def _one(self, decision: Decision) -> dict[str, Any]:
        if decision.memory is None:
            return await self._add(decision)
        if decision.event is Event.NONE:
            return operation(Event.NONE, decision.memory.id, decision.memory.content)
        before, said_at = await self._lock(decision.memory)
        if said_at > self.at:
            return await self._beside_later(decision, decision.memory, said_at)
        if decision.event is Event.SUPERSEDE:
            return await self._supersede(decision, decision.memory, before)
        if decision.event is Event.UPDATE:
            return await self._update(decision, decision.memory, before)
        return await self._delete(decision.memory, before)

    async def _beside_later(self, decision: Decision, later: PromptMemory, said_at: datetime) -> dict[str, Any]:
        """Adds what was said before a memory that it would change. What that memory replaces is archived."""
        if decision.event is Event.DELETE:
            raise ConflictError("The memory was said after this text.", code="said_later")
        result = await self._add(decision)
        id_ = UUID(result["id"])
        if decision.event is Event.SUPERSEDE and (result["event"] == Event.ADD or id_ in self.verbatim):
            await superseding.supersede(self.tx, self.caller, id_, later.id, since=said_at)
        return result

    async def _lock(self, memory: PromptMemory) -> tuple[dict[str, Any], datetime]:
        """Locks a memory and returns its state, and the time when it was said. Refuses it if the caller may not change
        it or its revision changed."""
        query = (
            select(
                Memory.content, Memory.revision, Memory.state, Memory.metadata_.label("metadata"),
                Memory.valid_until, Memory.superseded_by, CATEGORY_NAMES.label("categories"), WRITTEN_AT.label("said"),
            )
            .where(Memory.id == memory.id, readable_by(self.caller, Memory))
            .with_for_update(of=Memory, key_share=True)
        )  # fmt: skip
        row = (await self.tx.execute(query, self.caller.parameters)).one_or_none()
        if row is None:
            raise ConflictError("The memory is gone, or not the app's to change any more.", code="not_allowed")
        if row.revision != memory.revision:
            words = "The memory was changed while the language model thought about it."
            raise ConflictError(words, code="changed_meanwhile")
        before = {
            "content": row.content, "revision": row.revision, "state": row.state.value, "metadata": row.metadata,
            "categories": row.categories, "valid_until": _iso(row.valid_until),
            "superseded_by": row.superseded_by and str(row.superseded_by),
        }  # fmt: skip
        return before, row.said

    async def _add(self, decision: Decision) -> dict[str, Any]:
        [added] = await changes.add(
            self.tx, self.caller, [self.intake.created(self._new(decision))], {self.caller.app: self.caller.app_id}
        )
        return operation(added.event, added.id, added.memory, revision=1)

    def _new(self, decision: Decision) -> MemoryCreate:
        like = self.like
        importance = decision.importance and decision.importance / 10
        return replace(
            like,
            text=decision.text,
            kind=decision.kind if like.kind == "memory" and decision.kind else like.kind,
            importance=like.importance if like.importance is not None else importance,
            categories=tuple(dict.fromkeys((*like.categories, *decision.categories))),
            valid_from=decision.since,
            valid_until=decision.until,
            metadata=self._metadata(like.metadata, decision),
        )

    def _metadata(self, metadata: dict[str, Any], decision: Decision) -> dict[str, Any]:
        """Metadata with the user's emotion, and with the number of a message of a thread. Existing values stay, because
        they may be the user's own."""
        more = {EMOTION: decision.emotion, MESSAGE: self._position(decision)}
        new = {name: value for name, value in more.items() if value is not None and name not in metadata}
        return metadata | new if new else metadata

    async def _supersede(self, decision: Decision, old: PromptMemory, before: dict[str, Any]) -> dict[str, Any]:
        result = await self._add(decision)
        if UUID(result["id"]) == old.id:
            return operation(Event.NONE, old.id, old.content)
        await superseding.supersede(self.tx, self.caller, old.id, UUID(result["id"]), since=decision.since)
        more = {"superseded_id": str(old.id), "previous_memory": old.content, "before": before}
        return result | more | {"event": Event.SUPERSEDE.value, "added": result["event"] == Event.ADD}

    async def _update(self, decision: Decision, memory: PromptMemory, before: dict[str, Any]) -> dict[str, Any]:
        categories = tuple(dict.fromkeys((*before["categories"], *decision.categories)))
        metadata = self._metadata(before["metadata"], decision)
        new_metadata = None if metadata is before["metadata"] else metadata
        change = self.intake.changed(MemoryUpdate(decision.text, new_metadata, categories))
        await changes.update_text(
            self.tx, self.caller, Memory.id == memory.id, change, self.intake.labels, changed_at=self.at
        )
        revision = await self.tx.scalar(select(Memory.revision).where(Memory.id == memory.id))
        if revision == memory.revision:
            return operation(Event.NONE, memory.id, memory.content)
        await access_log.record(self.tx, self.caller, AccessType.UPDATE, [memory.id])
        result = operation(Event.UPDATE, memory.id, change.text or "", revision=revision)
        return result | {"previous_memory": memory.content, "before": before}

    async def _delete(self, memory: PromptMemory, before: dict[str, Any]) -> dict[str, Any]:
        await delete(self.tx, self.caller, memory.id)
        return operation(Event.DELETE, memory.id, memory.content, revision=memory.revision) | {"before": before}


def touched(operations: Iterable[dict[str, Any]]) -> set[UUID]:
    """The ids of all memories that stored operations refer to."""
    return {UUID(each[name]) for each in operations for name in ("id", "superseded_id") if each.get(name)}


async def delete(tx: Tx, caller: Caller, id_: UUID) -> None:
    """Soft-deletes a memory and logs it. The calling code must have locked the row."""
    await changes.change_state(tx, caller, Memory.id == id_, State.DELETED)
    await access_log.record(tx, caller, AccessType.DELETE, [id_], {"operation": "delete_by_id"})


async def readable_memories(tx: Tx, caller: Caller, ids: list[UUID]) -> list[PromptMemory]:
    """The memories that the caller may read, in the order of `ids`, without those flagged as prompt injection."""
    by_id = {memory.id: memory for memory in await _prompt_memories(tx, caller, Memory.id == func.any(ids), len(ids))}
    return [by_id[id_] for id_ in ids if id_ in by_id]


async def newest(tx: Tx, caller: Caller, namespace: str, *, besides: list[UUID], limit: int) -> list[PromptMemory]:
    """The newest memories of a namespace that the caller may read, without those flagged as prompt injection."""
    which = and_(Memory.user_id == caller.user_id, Memory.namespace == namespace, Memory.id != func.all(besides))
    return await _prompt_memories(tx, caller, which, limit)


async def _prompt_memories(tx: Tx, caller: Caller, which: ColumnElement[bool], limit: int) -> list[PromptMemory]:
    query = (
        select(Memory.id, Memory.content, Memory.revision, WRITTEN_AT.label("said"))
        .where(which, func.cardinality(Memory.labels) == 0, readable_by(caller, Memory))
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(limit)
    )
    rows = await tx.execute(query, caller.parameters)
    return [PromptMemory(row.id, row.content, row.revision, row.said) for row in rows]


def operation(event: Event, id_: UUID, text: str, *, revision: int | None = None) -> dict[str, Any]:
    """An operation as it is stored with its capture."""
    return {"event": event.value, "id": str(id_), "memory": text, "revision": revision}


def _iso(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat()
