"""Archive policies: a user's rules that archive memories unchanged for a long time, or expire old ones."""

from __future__ import annotations

from typing import Any, get_args
from uuid import UUID

from sqlalchemy import ColumnElement, case, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert

from openmemory.access.models import App, User
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.changes import category_ids
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle.schemas import Action, Policy, PolicyCreate
from openmemory.memories.models import ArchivePolicy, Category, MemoryCategory
from openmemory.memories.schemas import MemoryUpdate

MAX_POLICIES = 200
"""The maximum number of policies per user. Each is evaluated every hour."""


class Policies:
    """Creates, lists and removes policies. Only the user may, never an app."""

    def __init__(self, database: Database, intake: Intake) -> None:
        self._database = database
        self._intake = intake

    @retry_on_conflict
    async def create(self, caller: Caller, new: PolicyCreate) -> Policy:
        """Create a policy. An existing policy with the same criterion and action gets the new number of days.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the policy has no action or criterion, or two, or a category's name holds what `capture` refuses.
            NotFound: the app, or the category that an id names, is not the user's.
            ConflictError: the user has too many policies.
        """
        _only_owner(caller)
        caller.may_write()
        caller.may_read()  # the answer shows the name that belongs to an id
        new.check()
        async with self._database.transaction() as tx:
            # Serialized, because two concurrent requests could exceed the limit.
            await tx.execute(select(User.id).where(User.id == caller.user_id).with_for_update(key_share=True))
            values = {
                "user_id": caller.user_id, "criteria_type": new.criteria_type, "action": new.action,
                "days_to_archive": new.days, **await self._criterion(tx, caller, new),
            }  # fmt: skip
            by_name = "criteria_name" in values
            criterion = ["criteria_name"] if by_name else ["criteria_type", "criteria_id"]
            row = insert(ArchivePolicy).values(values)
            row = row.on_conflict_do_update(
                index_elements=["user_id", *criterion, "action"],
                index_where=(ArchivePolicy.criteria_name if by_name else ArchivePolicy.criteria_id).is_not(None),
                set_={"days_to_archive": row.excluded.days_to_archive},
            )
            policy_id = await tx.scalar(row.returning(ArchivePolicy.id))
            mine = ArchivePolicy.user_id == caller.user_id
            if (await tx.scalar(select(func.count()).select_from(ArchivePolicy).where(mine)) or 0) > MAX_POLICIES:
                raise ConflictError(f"A user has at most {MAX_POLICIES} archive policies.", code="too_many_policies")
            policy = Policy.model_validate((await tx.execute(_policies().where(ArchivePolicy.id == policy_id))).one())
            detail = {"criteria_type": policy.criteria_type, f"days_to_{new.action}": new.days}
            await audit_log.record(tx, caller, AuditAction.POLICY_CREATE, [policy.id], detail=detail)
        return policy

    async def list(self, caller: Caller) -> list[Policy]:
        """The user's policies, oldest first."""
        _only_owner(caller)
        caller.may_read()
        query = _policies().where(ArchivePolicy.user_id == caller.user_id)
        async with self._database.transaction() as tx:
            rows = await tx.execute(query.order_by(ArchivePolicy.created_at, ArchivePolicy.id))
            policies = [Policy.model_validate(row) for row in rows]
            await audit_log.record(tx, caller, AuditAction.POLICY_LIST)
        return policies

    @retry_on_conflict
    async def remove(self, caller: Caller, policy_id: UUID) -> None:
        """Remove a policy. Memories that it has archived or expired stay so.

        Raises:
            Forbidden: the caller is an app.
            NotFound: the user has no such policy.
        """
        _only_owner(caller)
        caller.may_write()
        mine = (ArchivePolicy.id == policy_id) & (ArchivePolicy.user_id == caller.user_id)
        async with self._database.transaction() as tx:
            if (await tx.execute(delete(ArchivePolicy).where(mine))).rowcount == 0:
                raise NotFound("Archive policy not found", code="policy_not_found")
            await audit_log.record(tx, caller, AuditAction.POLICY_DELETE, [policy_id])

    async def _criterion(self, tx: Tx, caller: Caller, new: PolicyCreate) -> dict[str, Any]:
        """The columns that store the criterion of a policy."""
        match new.criteria_type:
            case "user":
                if new.criteria_id not in (None, caller.user_id):
                    raise Invalid("criteria_id", "must be left out: a policy is about the user who makes it")
                return {"criteria_id": caller.user_id}
            case "namespace":
                return {"criteria_name": new.criteria_name}
            case "app":
                which = App.id == new.criteria_id if new.criteria_id is not None else App.name == new.criteria_name
                criteria_id = await tx.scalar(select(App.id).where(App.owner_id == caller.user_id, which))
            case "category":
                criteria_id = await self._category(tx, caller, new)
        if criteria_id is None:
            what = new.criteria_type
            raise NotFound(f"{what.capitalize()} not found", code=f"{what}_not_found")
        return {"criteria_id": criteria_id}

    async def _category(self, tx: Tx, caller: Caller, new: PolicyCreate) -> UUID | None:
        """A category by its name, or by its id if the user has memories in it or a policy about it.

        Categories are shared by name, so an id must not reveal what other users store. A name may come before the first
        memory with that category: the category is created, and no other user can see that.
        """
        if new.criteria_name is not None:
            [name] = self._intake.changed(MemoryUpdate(categories=(new.criteria_name,))).categories or ()
            return (await category_ids(tx, {name}))[name]
        has_memory = exists().where(MemoryCategory.category_id == Category.id, MemoryCategory.user_id == caller.user_id)
        has_policy = exists().where(
            ArchivePolicy.user_id == caller.user_id,
            ArchivePolicy.criteria_type == "category",
            ArchivePolicy.criteria_id == Category.id,
        )
        which = Category.id == new.criteria_id
        category_id: UUID | None = await tx.scalar(select(Category.id).where(which, has_memory | has_policy))
        return category_id


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and make archive policies")


def _policies() -> Any:
    return (
        select(
            ArchivePolicy.id,
            ArchivePolicy.criteria_type,
            ArchivePolicy.criteria_id,
            func.coalesce(ArchivePolicy.criteria_name, App.name, Category.name, User.user_id).label("criteria_name"),
            *(_days_to(action).label(f"days_to_{action}") for action in get_args(Action)),
            ArchivePolicy.created_at,
        )
        .outerjoin(App, (ArchivePolicy.criteria_type == "app") & (App.id == ArchivePolicy.criteria_id))
        .outerjoin(Category, (ArchivePolicy.criteria_type == "category") & (Category.id == ArchivePolicy.criteria_id))
        .outerjoin(User, (ArchivePolicy.criteria_type == "user") & (User.id == ArchivePolicy.criteria_id))
    )


def _days_to(action: Action) -> ColumnElement[int | None]:
    return case((ArchivePolicy.action == action, ArchivePolicy.days_to_archive))
