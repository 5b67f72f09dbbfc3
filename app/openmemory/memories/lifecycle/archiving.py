"""The job that applies archive policies and archives expired memories, in batches."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, literal_column, select, true
from sqlalchemy.orm import InstrumentedAttribute

from openmemory.access.directory import Directory
from openmemory.access.models import User
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door, Principal
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import SyncRunning, alone
from openmemory.memories import changes
from openmemory.memories.models import ACTIVE, IS_ACTIVE, ArchivePolicy, Memory, MemoryCategory, MemoryStatusHistory
from openmemory.memories.state import State

log = logging.getLogger(__name__)

LOCK = 0x6F6D6172
"""The key of the advisory lock, which lets only one replica archive at a time."""

BATCH = 500
"""Memories per transaction."""

_PAGE = 1_000
"""Policies or users per read."""

_ACTIVE_AGAIN = MemoryStatusHistory.new_state == ACTIVE


class _Some(NamedTuple):
    """A group of memories to archive: condition and parameters, the access to log with its detail, and the order."""

    where: ColumnElement[bool]
    values: dict[str, Any]
    access: AccessType
    detail: dict[str, Any]
    oldest: InstrumentedAttribute[Any]


class Archiving:
    """Archives memories that have not changed for the period of a policy, and memories that have expired.

    For archiving, the later of `created_at` and `updated_at` counts. Every change of a memory's text, metadata,
    categories or state sets `updated_at`, so the period of a restored memory starts again. Reading is not a change. For
    expiry by a policy, `created_at` counts, or the time when the memory last became active if that is later. Only
    active memories are archived, not paused or deleted ones. Rows that another transaction has locked wait for the next
    run.
    """

    def __init__(self, database: Database, directory: Directory, delivery: OutboxDelivery) -> None:
        self._database = database
        self._directory = directory
        self._delivery = delivery
        self.archived = 0
        """Memories archived by this process since its start."""
        self._turn = asyncio.Lock()

    async def run(self) -> int:
        """Archive what is due, unless another replica is doing so. Returns the number of archived memories. Runs within
        this process are serialized.

        Raises:
            Unavailable: PostgreSQL does not answer. Memories archived so far stay archived.
        """
        async with self._turn:
            before = self.archived
            try:
                async with alone(self._database, LOCK):
                    await self._expired()
                    await self._policies()
            except SyncRunning:
                return 0
            if count := self.archived - before:
                log.info("%d memories archived by policies, or because they expired", count)
            return count

    async def _expired(self) -> None:
        """Archive memories whose `expires_at` has passed."""
        has_expired = exists().where(expired(User.id))
        after = UUID(int=0)
        while True:
            query = select(User.id, User.user_id).where(User.id > after, has_expired.correlate(User))
            async with self._database.statement() as tx:
                users = (await tx.execute(query.order_by(User.id).limit(_PAGE))).all()
            if not users:
                return
            after = users[-1].id
            for user in users:
                where, values = expired(bindparam("expired_user_id")), {"expired_user_id": user.id}
                some = _Some(where, values, AccessType.EXPIRE, {}, Memory.expires_at)
                await self._all(user.user_id, Principal("expiry", "expiry", door=Door.JOB), some)

    async def _policies(self) -> None:
        after = UUID(int=0)
        while policies := await self._page(after):
            after = policies[-1].id
            for policy in policies:
                expires = policy.action == "expire"
                some = _Some(
                    due_memories(policy.criteria_type, policy.action), parameters(policy),
                    AccessType.EXPIRE if expires else AccessType.ARCHIVE,
                    {"policy": str(policy.id), f"days_to_{policy.action}": policy.days},
                    Memory.created_at if expires else Memory.updated_at,
                )  # fmt: skip
                await self._all(policy.user, Principal(f"policy:{policy.id}", "archive policy", door=Door.JOB), some)

    async def _page(self, after: UUID) -> Sequence[Any]:
        """Some policies, each with the name of its user."""
        more = (ArchivePolicy.days_to_archive.label("days"), User.user_id.label("user"))
        query = (
            select(*ArchivePolicy.__table__.columns, *more)
            .join(User, User.id == ArchivePolicy.user_id)
            .where(ArchivePolicy.id > after)
        )
        async with self._database.statement() as tx:
            return (await tx.execute(query.order_by(ArchivePolicy.id).limit(_PAGE))).all()

    async def _all(self, user: str, principal: Principal, some: _Some) -> None:
        try:
            caller = replace(await self._directory.existing(user), principal=principal)
        except NotFound:  # the user was erased meanwhile
            return
        while True:
            count = await self._archive_batch(caller, some)
            self.archived += count
            if count:
                self._delivery.wake()
            if count < BATCH:
                return

    @retry_on_conflict
    async def _archive_batch(self, caller: Caller, some: _Some) -> int:
        """Archive one batch in one transaction. Returns its size."""
        async with self._database.transaction() as tx:
            oldest = select(Memory.id).where(some.where).order_by(some.oldest).limit(literal_column(str(BATCH)))
            free = oldest.with_for_update(key_share=True, skip_locked=True, of=Memory)
            ids = list(await tx.scalars(free, some.values))
            if not ids:
                return 0
            # The condition is checked again on the locked rows, because the policy may have been removed meanwhile.
            archived_ids = await _archive(tx, caller, some, and_(Memory.id == func.any(ids), some.where))
            if archived_ids:
                await access_log.record(tx, caller, some.access, archived_ids, some.detail)
        return len(archived_ids)


async def _archive(tx: Tx, caller: Caller, some: _Some, which: ColumnElement[bool]) -> list[UUID]:
    if some.access is AccessType.EXPIRE and some.detail:  # by a policy: they have no `expires_at` yet
        return await changes.expire(tx, caller, which, some.values)
    return [id_ for id_, _ in await changes.change_state(tx, caller, which, State.ARCHIVED, some.values)]


def expired(user_id: Any) -> ColumnElement[bool]:
    """The active memories of a user whose `expires_at` has passed."""
    return and_(Memory.user_id == user_id, IS_ACTIVE, Memory.expires_at <= func.now())


def due_memories(criteria_type: str, action: str) -> ColumnElement[bool]:
    """The memories that are due now under a policy of this type and action. Binds `parameters`.

    All policies of one type and action share the SQL text, so that it is planned once. The states are constants in the
    SQL, so that partial indexes match.
    """
    since = func.now() - func.make_interval(0, 0, 0, bindparam("policy_days"))
    in_force = exists().where(
        ArchivePolicy.id == bindparam("policy_id"), ArchivePolicy.days_to_archive == bindparam("policy_days")
    )
    unchanged = Memory.updated_at < since
    if action == "expire":
        active_again = exists().where(
            MemoryStatusHistory.memory_id == Memory.id, _ACTIVE_AGAIN, MemoryStatusHistory.changed_at >= since
        )
        unchanged = and_(Memory.expires_at.is_(None), ~active_again)
    return and_(
        Memory.user_id == bindparam("policy_user_id"),
        IS_ACTIVE,
        Memory.created_at < since,
        unchanged,
        _criterion(criteria_type),
        in_force.correlate(None),
    )


def _criterion(criteria_type: str) -> ColumnElement[bool]:
    match criteria_type:
        case "app":
            return Memory.app_id == bindparam("policy_criteria_id")
        case "namespace":
            return Memory.namespace == bindparam("policy_criteria_name")
        case "category":
            return exists().where(
                MemoryCategory.memory_id == Memory.id, MemoryCategory.category_id == bindparam("policy_criteria_id")
            )
    return true()


def parameters(policy: Any) -> dict[str, Any]:
    """Returns the values of the parameters in the statement of `due_memories`."""
    return {
        "policy_id": policy.id,
        "policy_user_id": policy.user_id,
        "policy_criteria_id": policy.criteria_id,
        "policy_criteria_name": policy.criteria_name,
        "policy_days": policy.days,
    }
