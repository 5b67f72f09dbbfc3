"""Archive policies: a user's rules that archive memories unchanged for a long time, or expire old ones."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self, get_args
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy import ColumnElement, case, delete, exists, func, select
from sqlalchemy.dialects.postgresql import insert

from openmemory.access.models import App, User
from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.config.settings import MAX_NAME_LENGTH
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.changes import category_ids
from openmemory.memories.intake import Intake
from openmemory.memories.models import ArchivePolicy, Category, MemoryCategory
from openmemory.memories.schemas import MemoryUpdate
from openmemory.memories.validation import MAX_DAYS

MAX_POLICIES = 200
"""The maximum number of policies per user. Each is evaluated every hour."""

CriteriaType = Literal["user", "app", "category", "namespace"]

Action = Literal["archive", "expire"]


class PolicyCreate(BaseModel):
    """A policy to make. An app or category is told by its id or its name, a namespace by its name."""

    model_config = ConfigDict(extra="forbid")

    criteria_type: CriteriaType = Field(description="What it is about: everything of the user, or of one of these.")
    criteria_id: UUID | None = Field(default=None, description="The app's or category's id.")
    criteria_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_NAME_LENGTH,
        description="The namespace; or the app's or category's name.",
    )
    days_to_archive: int | None = Field(
        default=None, ge=1, le=MAX_DAYS, description="Days without a change after which it is archived."
    )
    days_to_expire: int | None = Field(
        default=None,
        ge=1,
        le=MAX_DAYS,
        description="In place of `days_to_archive`: days after which it expires, changed or not, from when it was made"
        " or last made active again. A memory's own `expires_at` takes precedence.",
    )

    @property
    def action(self) -> Action:
        """The action of the policy."""
        return "archive" if self.days_to_expire is None else "expire"

    @property
    def days(self) -> int:
        """The number of days after which the action takes place."""
        return self.days_to_archive or self.days_to_expire or 0

    @model_validator(mode="after")
    def _tells_when(self) -> Self:
        if self.days_to_archive is None and self.days_to_expire is None:
            raise ValueError("days_to_archive: must be given, or days_to_expire")
        if self.days_to_archive is not None and self.days_to_expire is not None:
            raise ValueError("days_to_expire: must be left out where days_to_archive is given; make two policies")
        return self

    @model_validator(mode="after")
    def _tells_what(self) -> Self:
        given = (self.criteria_id is not None) + (self.criteria_name is not None)
        if self.criteria_type == "user" and self.criteria_name is not None:
            raise ValueError("criteria_name: must be left out where criteria_type is user")
        if self.criteria_type == "namespace" and (self.criteria_id is not None or self.criteria_name is None):
            raise ValueError("criteria_name: must name the namespace, which has no id")
        if self.criteria_type in ("app", "category") and given != 1:
            raise ValueError(f"criteria_id: must tell the {self.criteria_type}, or criteria_name; not both")
        return self


class Policy(BaseModel):
    """A policy that is in force."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    criteria_type: CriteriaType
    criteria_id: UUID | None = Field(description="The id of the user, the app or the category; null for a namespace.")
    criteria_name: str | None = Field(description="The name of the user, the app, the category or the namespace.")
    days_to_archive: int | None = Field(description="Days without a change; null: memories expire by it.")
    days_to_expire: int | None = Field(
        description="Days since they were made after which memories expire; left out where they are archived.",
        exclude_if=lambda value: value is None,
    )
    created_at: datetime


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
            Invalid: the category's name holds what `capture` refuses.
            NotFound: the app, or the category that an id names, is not the user's.
            ConflictError: the user has too many policies.
        """
        _only_owner(caller)
        caller.may_write()
        caller.may_read()  # the answer shows the name that belongs to an id
        async with self._database.transaction() as tx:
            # Serialized, because two concurrent requests could exceed the limit.
            await tx.execute(select(User.id).where(User.id == caller.user_id).with_for_update(key_share=True))
            values = {
                "user_id": caller.user_id, "criteria_type": new.criteria_type, "action": new.action,
                "days_to_archive": new.days, **await self._criterion(tx, caller, new),
            }  # fmt: skip
            named = "criteria_name" in values
            criterion = ["criteria_name"] if named else ["criteria_type", "criteria_id"]
            row = insert(ArchivePolicy).values(values)
            row = row.on_conflict_do_update(
                index_elements=["user_id", *criterion, "action"],
                index_where=(ArchivePolicy.criteria_name if named else ArchivePolicy.criteria_id).is_not(None),
                set_={"days_to_archive": row.excluded.days_to_archive},
            )
            made = await tx.scalar(row.returning(ArchivePolicy.id))
            mine = ArchivePolicy.user_id == caller.user_id
            if (await tx.scalar(select(func.count()).select_from(ArchivePolicy).where(mine)) or 0) > MAX_POLICIES:
                raise ConflictError(f"A user has at most {MAX_POLICIES} archive policies.", code="too_many_policies")
            policy = Policy.model_validate((await tx.execute(_policies().where(ArchivePolicy.id == made))).one())
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
            found = [Policy.model_validate(row) for row in rows]
            await audit_log.record(tx, caller, AuditAction.POLICY_LIST)
        return found

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
                found = await tx.scalar(select(App.id).where(App.owner_id == caller.user_id, which))
            case "category":
                found = await self._category(tx, caller, new)
        if found is None:
            what = new.criteria_type
            raise NotFound(f"{what.capitalize()} not found", code=f"{what}_not_found")
        return {"criteria_id": found}

    async def _category(self, tx: Tx, caller: Caller, new: PolicyCreate) -> UUID | None:
        """A category by its name, or by its id if the user has memories in it or a policy about it.

        Categories are shared by name, so an id must not reveal what other users store. A name may come before the first
        memory with that category: the category is created, and nobody else learns of it.
        """
        if new.criteria_name is not None:
            [name] = self._intake.changed(MemoryUpdate(categories=(new.criteria_name,))).categories or ()
            return (await category_ids(tx, {name}))[name]
        assigned = exists().where(MemoryCategory.category_id == Category.id, MemoryCategory.user_id == caller.user_id)
        known = exists().where(
            ArchivePolicy.user_id == caller.user_id,
            ArchivePolicy.criteria_type == "category",
            ArchivePolicy.criteria_id == Category.id,
        )
        which = Category.id == new.criteria_id
        found: UUID | None = await tx.scalar(select(Category.id).where(which, assigned | known))
        return found


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
