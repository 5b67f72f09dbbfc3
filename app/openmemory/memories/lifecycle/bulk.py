"""Changes many memories at once, and undoes such a change."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple
from uuid import UUID, uuid4

from sqlalchemy import (
    ColumnElement,
    and_,
    exists,
    func,
    not_,
    or_,
    select,
    text,
    true,
    update,
)

from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, erasure, repository, state_machine, validation
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle import transitions, undoing
from openmemory.memories.lifecycle.schemas import BulkChange, Selection
from openmemory.memories.lifecycle.undoing import Undone
from openmemory.memories.listing.criteria import ListCriteria, parameters
from openmemory.memories.models import Memory, MemoryCategory
from openmemory.memories.schemas import MemoryUpdate
from openmemory.memories.state import State

LONGEST = 300
"""The maximum seconds of one statement. A selection may be all memories of a user."""

_FILE = text(
    """
    INSERT INTO memory_categories (memory_id, category_id)
    SELECT memory_id, category_id FROM memory_undo WHERE action = :action
    ON CONFLICT DO NOTHING
    """
)
_LEAVE_ALONE = text(
    """
    INSERT INTO pending_categorizations (memory_id, due_at)
    SELECT memory_id, 'infinity' FROM memory_undo WHERE action = :action
    ON CONFLICT (memory_id) DO UPDATE SET due_at = 'infinity'
    """
)


class BulkResult(NamedTuple):
    """The number of memories that changed, and the id under which the change can be undone."""

    changed: int
    action: UUID


class _Which(NamedTuple):
    """A condition for memories, and its parameters."""

    where: ColumnElement[bool]
    values: dict[str, Any]


class BulkChanges:
    """Changes the memories of a selection in one transaction, and undoes that for some minutes. Only the user may.

    Memories that a change does not concern, such as those that already have the state, stay as they are.
    """

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        *,
        intake: Intake,
        limits: LimitSettings,
        write_counts: Counter[str],
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._write_counts = write_counts

    @retry_on_conflict
    async def apply(self, caller: Caller, selection: Selection, change: BulkChange) -> BulkResult:
        """Change the memories of a selection that can change.

        Raises:
            Forbidden: the caller is an app.
            Invalid: a filter, the category or the expiry is invalid, or there are too many ids.
            NotFound: none of the ids is the caller's.
            ConflictError: the change is not allowed from the state of any of them, or a memory would become active
                while another one has the same text.
        """
        _only_owner(caller)
        caller.may_write()
        checked_change = self._check(change)
        action = uuid4()
        async with self._database.long_transaction(LONGEST) as tx:
            which = self._which(caller, selection, change.state)
            category = None
            if checked_change.categories:
                [category] = (await changes.category_ids(tx, set(checked_change.categories))).values()
            condition = and_(which.where, _affected_by(change, category))
            count = await undoing.remember(tx, action, condition, which.values, category=category)
            if not count:
                await _refuse(tx, which, change.state)
            elif change.state is not None:
                await _move(tx, caller, action, change.state)
            else:
                await _amend(tx, caller, action, checked_change, category)
        self._write_counts["update" if change.state is None else change.state.value] += count
        self._delivery.wake()
        return BulkResult(count, action)

    def _check(self, change: BulkChange) -> MemoryUpdate:
        categories = None if change.category is None else (change.category,)
        if categories is not None and not change.category:
            raise Invalid("category", "must name a category")
        return self._intake.changed(MemoryUpdate(categories=categories, expiry=change.expiry))

    def _which(self, caller: Caller, selection: Selection, target: State | None) -> _Which:
        """The memories of a selection that the caller may change."""
        if selection.query is not None:
            query = self._intake.narrowed(caller, selection.query)
            return _Which(ListCriteria.of(caller, query).matching(), parameters(caller, query))
        ids = list(dict.fromkeys(selection.ids))
        if not ids:
            raise Invalid("memory_ids", "must name at least one memory")
        validation.count(ids, "memory_ids", self._limits.ids, "limits.ids")
        readable = readable_by(caller, Memory, states=repository.KEPT_STATES)
        mine = readable if target is None else transitions.movable(caller, target)
        return _Which(and_(Memory.id == func.any(ids), mine), caller.parameters)

    @retry_on_conflict
    async def undo(self, caller: Caller, action: UUID) -> Undone:
        """Make the memories that an action changed what they were before. Memories that were changed since stay.

        Raises:
            Forbidden: the caller is an app.
            NotFound: there is no such action of the caller's user, or it is too old, or it was undone.
            ConflictError: a memory would become active while another one has the same text.
        """
        _only_owner(caller)
        caller.may_write()
        async with self._database.long_transaction(LONGEST) as tx:
            result = await undoing.revert(tx, caller, action, self._intake.labels)
        self._write_counts["undo"] += result.restored
        self._delivery.wake()
        return result

    @retry_on_conflict
    async def erase(self, caller: Caller, selection: Selection) -> int:
        """Permanently remove the memories of a selection with their texts, history, log and vectors.

        Raises:
            Forbidden: the caller is an app.
            NotFound: none of the ids is the caller's.
        """
        _only_owner(caller)
        caller.may_write()
        async with self._database.long_transaction(LONGEST) as tx:
            which = self._which(caller, selection, State.ACTIVE)
            ids = list(await tx.scalars(select(Memory.id).where(which.where), which.values))
            if not ids:
                raise repository.no_memory()
            count = await erasure.erase(tx, ids)
            await audit_log.record(tx, caller, AuditAction.MEMORY_ERASE, ids)
        self._write_counts["erase"] += count
        self._delivery.wake()
        return count

    async def prune(self) -> None:
        """Forget what can no longer be undone."""
        async with self._database.statement() as tx:
            await undoing.prune(tx)


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("change many memories at once", everywhere=False)


def _affected_by(change: BulkChange, category: UUID | None) -> ColumnElement[bool]:
    """The memories that a change would make different."""
    if change.state is not None:
        return or_(*(Memory.state == state for state in state_machine.sources(change.state)))
    if category is not None:
        has_category = exists().where(MemoryCategory.memory_id == Memory.id, MemoryCategory.category_id == category)
        return not_(has_category.correlate(Memory))
    return true()


async def _refuse(tx: Tx, which: _Which, target: State | None) -> None:
    """Report why none of the memories changed.

    Raises:
        NotFound: there are none.
        ConflictError: their states do not allow it. Memories that already are what they should be are no failure.
    """
    query = select(Memory.state).where(which.where).distinct().order_by(Memory.state)
    states = [State(each) for each in await tx.scalars(query, which.values)]
    if not states:
        raise repository.no_memory()
    if target is not None and (others := [state for state in states if state is not target]):
        raise state_machine.refuse(others[0], target)


async def _move(tx: Tx, caller: Caller, action: UUID, target: State) -> None:
    changed_ids = [id_ for id_, _ in await changes.change_state(tx, caller, undoing.changed_by(action), target)]
    operation = {"operation": "delete_by_id"} if target is State.DELETED else None
    await access_log.record(tx, caller, transitions.ACCESS[target], changed_ids, operation)


async def _amend(tx: Tx, caller: Caller, action: UUID, change: MemoryUpdate, category: UUID | None) -> None:
    """Set the expiry of the memories, or file them under a category as well. Nobody assigns them automatically then."""
    values: dict[str, Any] = {"updated_at": func.now()}
    detail: dict[str, Any] = {"categories": list(change.categories or ())}
    if change.expiry is not None:
        values["expires_at"] = at = changes.end_of(change.expiry)
        detail = {"expires_at": None if at is None else at.isoformat()}
    which = undoing.changed_by(action)
    changed_ids = list(await tx.scalars(update(Memory).where(which).values(values).returning(Memory.id)))
    if category is not None:
        await tx.execute(_FILE, {"action": action})
        await tx.execute(_LEAVE_ALONE, {"action": action})
    await outbox.add_entries(tx, ItemKind.MEMORY, changed_ids)
    await access_log.record(tx, caller, AccessType.UPDATE, changed_ids, detail)
