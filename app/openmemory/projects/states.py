"""The use cases of the state of a project: one JSON object for each namespace, which wins over memories.

A state is a memory of the kind `state`, so that rules, history, archives and erasure are those of memories. No search
finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from openmemory.access.apps import refuse_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.config.settings import LimitSettings
from openmemory.content_policy.injection import LABEL
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, repository, validation
from openmemory.memories.intake import CHECKPOINT, STATE, Intake
from openmemory.memories.schemas import CheckedMemory, MemoryCreate, MemoryRecord
from openmemory.projects import anchors, singletons, tokens
from openmemory.projects.schemas import (
    ChangedLeaf,
    CheckpointSaved,
    NewCheckpoint,
    ProjectState,
    StateHistory,
    StateRevision,
)
from openmemory.serialization import exact_json

SUMMARY = 120
"""The number of tokens of a summary of a state."""

_REVISIONS = 100
"""The number of revisions that a history shows."""


class ProjectStates:
    """Saves, reads and compares the states of projects."""

    def __init__(
        self, database: Database, delivery: OutboxDelivery, *, intake: Intake, limits: LimitSettings, rates: RateLimiter
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._rates = rates

    async def checkpoint(self, caller: Caller, new: NewCheckpoint) -> CheckpointSaved:
        """Save the state of a namespace, and remember the reason as a memory of the kind `checkpoint`.

        Raises:
            ConflictError: the state has another revision than `expected_revision`.
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: a field cannot be stored.
        """
        state, reason = self._check(new)
        caller.may_write(state.namespace)
        if new.expected_revision is not None:
            validation.between(new.expected_revision, "expected_revision", 0, 2**31 - 1)
        await self._rates.save(caller, 1)
        saved = await self._save(caller, state, reason, new.expected_revision)
        self._delivery.wake()
        return saved

    def _check(self, new: NewCheckpoint) -> tuple[CheckedMemory, CheckedMemory]:
        state = self._intake.json_object(new.state, "state")
        belongs = {} if new.commit is None else {anchors.COMMIT: anchors.commit(new.commit, "commit")}
        checkpoint = MemoryCreate(
            new.reason, namespace=new.namespace, thread_id=new.thread_id, kind=CHECKPOINT, metadata=belongs
        )
        reason = self._intake.created(checkpoint, field="reason")
        return as_memory(state, reason.namespace, {"reason": reason.text}, self._intake, self._limits), reason

    @retry_on_conflict
    async def _save(
        self, caller: Caller, state: CheckedMemory, reason: CheckedMemory, expected: int | None
    ) -> CheckpointSaved:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "save the state of a project")
            there = await singletons.present(tx, caller, state.namespace, STATE, None)
            revision = 0 if there is None else there.revision
            if expected is not None and expected != revision:
                raise ConflictError(
                    f"The state has revision {revision}, not {expected}.",
                    code="state_changed",
                    hint="Read it, merge your changes, and save it with this expected_revision.",
                )
            result = await singletons.save(tx, caller, there, state, self._intake.labels)
            [added] = await changes.add(tx, caller, [reason], {})
        return CheckpointSaved(
            result.id,
            state.namespace,
            result.revision,
            result.event,
            added.id,
            len(state.text),
            self._limits.text,
        )

    async def read(self, caller: Caller, namespace: str) -> ProjectState:
        """The state of a namespace.

        Raises:
            NotFound: there is none, or the caller may not read it.
        """
        record = await self._read(caller, namespace)
        return self._to_state(record)

    def _to_state(self, record: MemoryRecord) -> ProjectState:
        state, note = parsed(record.content)
        return ProjectState(
            record.id, record.namespace, state, record.revision, _reason(record.metadata_),
            record.text_app_name, record.updated_at, record.labels, len(record.content), self._limits.text, note,
        )  # fmt: skip

    async def find(self, caller: Caller, namespace: str) -> ProjectState | None:
        """The state of a namespace, or None. The rate limit counts the operation that asks for it, not this call."""
        record = await self._find(caller, namespace, count=False)
        return None if record is None else self._to_state(record)

    async def _read(self, caller: Caller, namespace: str) -> MemoryRecord:
        if (record := await self._find(caller, namespace, count=True)) is None:
            raise NotFound("The project has no state.", code="state_not_found")
        return record

    async def _find(self, caller: Caller, namespace: str, *, count: bool) -> MemoryRecord | None:
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        if count:
            await self._rates.search(caller)
        async with self._database.statement() as tx:
            return await singletons.read(tx, caller, STATE, namespace)

    async def history(self, caller: Caller, namespace: str) -> StateHistory:
        """The last revisions of a state with what each changed, the last first.

        Raises:
            NotFound: there is none, or the caller may not read it.
        """
        record = await self._read(caller, namespace)
        async with self._database.transaction() as tx:
            _, revisions = await repository.history(tx, caller, record.id)
        result = list[StateRevision]()
        for one in revisions[-_REVISIONS:]:
            before = {} if one.old_text is None else parsed(one.old_text)[0] or {}
            after = parsed(one.new_text)[0] or {}
            changed = list(difference(before, after))
            result.append(StateRevision(one.revision, _reason(one.metadata_), one.app_name, one.changed_at, changed))
        return StateHistory(record.id, record.namespace, result[::-1])


def as_memory(
    state: dict[str, Any], namespace: str, metadata: dict[str, Any], intake: Intake, limits: LimitSettings
) -> CheckedMemory:
    """The memory that holds a state.

    Raises:
        Invalid: the state is too long.
    """
    content = exact_json.dumps(state).decode()
    validation.part(content, "state", limits.text, "limits.text")
    labels = intake.labels(content, {})
    return CheckedMemory(content, namespace=namespace, kind=STATE, metadata=metadata, labels=labels)


async def summary(state: ProjectState | None, limit: int = SUMMARY) -> str:
    """The beginning of a state as a line of at most `SUMMARY` tokens, and at most `limit`.

    Empty if there is none, or if it reads like orders to an assistant.
    """
    if state is None or not state.state or LABEL in state.labels:
        return ""
    line = f"State of the project (revision {state.revision}): {exact_json.dumps(state.state).decode()}"
    # In a thread, because tokens are counted.
    return await asyncio.to_thread(tokens.cut, line, min(limit, SUMMARY))


def _reason(metadata: dict[str, Any]) -> str | None:
    """The reason of a checkpoint. Whoever edits the memory may leave anything in its place."""
    reason = metadata.get("reason")
    return reason if isinstance(reason, str) else None


def parsed(content: str) -> tuple[dict[str, Any] | None, str | None]:
    """The state, or None and the reason why it cannot be read."""
    try:
        state = exact_json.loads(content)
    except ValueError as error:
        return None, f"The state cannot be read as JSON ({error}). Save it again with a checkpoint."
    if not isinstance(state, dict):
        return None, "The state is no JSON object. Save it again with a checkpoint."
    return state, None


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of a state with the keys that lead to them. Lists are values."""
    if isinstance(value, dict) and (value or not path):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def difference(before: dict[str, Any], after: dict[str, Any]) -> Iterator[ChangedLeaf]:
    """The values that differ between two states, by their paths."""
    old, new = dict(leaves(before)), dict(leaves(after))
    for path in sorted(old.keys() | new.keys()):
        if (path in old, old.get(path)) != (path in new, new.get(path)):
            yield ChangedLeaf(".".join(path), old.get(path), new.get(path))
