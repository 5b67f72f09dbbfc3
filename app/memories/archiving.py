"""The job that carries out archive policies, some memories at a time."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_, bindparam, exists, func, literal_column, select, true

from app.access.caller import Caller
from app.access.directory import Directory
from app.access.models import User
from app.access.principal import Door, Principal
from app.audit import trail
from app.audit.trail import Access
from app.database import Database
from app.errors import NotFound
from app.index.deliver import Deliverer
from app.index.reconcile import SyncRunning, alone
from app.memories import changes
from app.memories.models import ArchivePolicy, Memory, MemoryCategory, State

log = logging.getLogger(__name__)

LOCK = 0x6F6D6172
"""Key of the advisory lock of the one replica that archives."""

BATCH = 500
"""Memories of one transaction."""

_PAGE = 1_000
"""Policies that are read at once."""


class _Due(NamedTuple):
    """A policy, and whose it is."""

    id: UUID
    user_id: UUID
    user: str
    criteria_type: str
    criteria_id: UUID | None
    criteria_name: str | None
    days: int


class Archiving:
    """Archives what has not changed for as long as a policy says.

    What counts is the later of `created_at` and `updated_at`; every change of a memory's text, metadata, categories or
    state sets the latter. So what its user brings back from the archive has its whole time before it again. Being read
    is no change. Only active memories are archived: those that were paused or deleted have been put away already.
    """

    def __init__(self, database: Database, directory: Directory, delivery: Deliverer) -> None:
        self._database = database
        self._directory = directory
        self._delivery = delivery
        self.archived = 0
        """Memories archived by this process since its start."""

    async def run(self) -> int:
        """Carry out every policy, unless another replica is at it; returns how many memories were archived.

        Raises:
            Unavailable: PostgreSQL does not answer. What was archived stays so.
        """
        before = self.archived
        try:
            async with alone(self._database, LOCK):
                after = UUID(int=0)
                while policies := await self._page(after):
                    for policy in policies:
                        await self._carry_out(policy)
                    after = policies[-1].id
        except SyncRunning:
            return 0
        if done := self.archived - before:
            log.info("archive policies: %d memories archived", done)
        return self.archived - before

    async def _page(self, after: UUID) -> list[_Due]:
        columns = (
            ArchivePolicy.id, ArchivePolicy.user_id, User.user_id, ArchivePolicy.criteria_type,
            ArchivePolicy.criteria_id, ArchivePolicy.criteria_name, ArchivePolicy.days_to_archive,
        )  # fmt: skip
        query = select(*columns).join(User, User.id == ArchivePolicy.user_id).where(ArchivePolicy.id > after)
        async with self._database.statement() as tx:
            return [_Due(*row) for row in await tx.execute(query.order_by(ArchivePolicy.id).limit(_PAGE))]

    async def _carry_out(self, policy: _Due) -> None:
        try:
            user = await self._directory.existing(policy.user)
        except NotFound:  # erased a moment ago
            return
        caller = replace(user, principal=Principal(f"policy:{policy.id}", "archive policy", door=Door.JOB))
        while await self._some(caller, policy) == BATCH:
            continue

    async def _some(self, caller: Caller, policy: _Due) -> int:
        """Archive some of what is due, in one transaction; returns how many."""
        where, values = due(policy.criteria_type), parameters(policy)
        async with self._database.transaction() as tx:
            oldest = select(Memory.id).where(where).order_by(Memory.updated_at).limit(literal_column(str(BATCH)))
            ids = list(await tx.scalars(oldest, values))
            if not ids:
                return 0
            # Asked again of each row once it is locked: somebody may have changed it, or ended the policy.
            which = and_(Memory.id == func.any(ids), where)
            changed = [id_ for id_, _ in await changes.change_state(tx, caller, which, State.ARCHIVED, values)]
            if changed:
                detail = {"policy": str(policy.id), "days_to_archive": policy.days}
                await trail.record(tx, caller, Access.ARCHIVE, changed, detail)
        self.archived += len(changed)
        self._delivery.wake()
        return len(changed)


def due(criteria_type: str) -> ColumnElement[bool]:
    """The memories that a policy of this type archives now; binds `parameters`.

    The same text for every policy of a type, so that it is planned once; constants of our own are part of it, so that
    partial indexes match.
    """
    since = func.now() - func.make_interval(0, 0, 0, bindparam("policy_days"))
    in_force = exists().where(
        ArchivePolicy.id == bindparam("policy_id"), ArchivePolicy.days_to_archive == bindparam("policy_days")
    )
    criterion: ColumnElement[bool] = true()
    match criteria_type:
        case "app":
            criterion = Memory.app_id == bindparam("policy_criteria_id")
        case "namespace":
            criterion = Memory.namespace == bindparam("policy_criteria_name")
        case "category":
            criterion = exists().where(
                MemoryCategory.memory_id == Memory.id, MemoryCategory.category_id == bindparam("policy_criteria_id")
            )
    return and_(
        Memory.user_id == bindparam("policy_user_id"),
        Memory.state == literal_column("'active'::memory_state"),
        Memory.updated_at < since,
        Memory.created_at < since,
        criterion,
        in_force.correlate(None),
    )


def parameters(policy: Any) -> dict[str, Any]:
    """What `due` binds."""
    return {
        "policy_id": policy.id,
        "policy_user_id": policy.user_id,
        "policy_criteria_id": policy.criteria_id,
        "policy_criteria_name": policy.criteria_name,
        "policy_days": policy.days,
    }
