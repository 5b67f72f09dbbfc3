"""Requests and results of archive policies, and of changes of many memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.config.settings import MAX_NAME_LENGTH
from openmemory.errors import Invalid
from openmemory.memories.schemas import Expiry, MemoryQuery
from openmemory.memories.state import State
from openmemory.memories.validation import MAX_DAYS

CriteriaType = Literal["user", "app", "category", "namespace"]
Action = Literal["archive", "expire"]

Criterion = Annotated[CriteriaType, Field(description="What it is about: everything of the user, or of one of these.")]
CriterionId = Annotated[UUID | None, Field(description="The app's or category's id.")]
CriterionName = Annotated[
    str | None,
    Field(min_length=1, max_length=MAX_NAME_LENGTH, description="The namespace; or the app's or category's name."),
]
DaysToArchive = Annotated[
    int | None, Field(ge=1, le=MAX_DAYS, description="Days without a change after which it is archived.")
]
DaysToExpire = Annotated[
    int | None,
    Field(
        ge=1,
        le=MAX_DAYS,
        description="In place of `days_to_archive`: days after which it expires, changed or not, from when it was made"
        " or last made active again. A memory's own `expires_at` takes precedence.",
    ),
]


class PolicyCreate(BaseModel):
    """A policy to make. An app or category is named by its id or its name, a namespace by its name."""

    model_config = ConfigDict(extra="forbid")

    criteria_type: Criterion
    criteria_id: CriterionId = None
    criteria_name: CriterionName = None
    days_to_archive: DaysToArchive = None
    days_to_expire: DaysToExpire = None

    @property
    def action(self) -> Action:
        """The action of the policy."""
        return "archive" if self.days_to_expire is None else "expire"

    @property
    def days(self) -> int:
        """The number of days after which the action takes place."""
        return self.days_to_archive or self.days_to_expire or 0

    def check(self) -> None:
        """Checks that it has one action and one criterion.

        Raises:
            Invalid: it does not.
        """
        if self.days_to_archive is None and self.days_to_expire is None:
            raise Invalid("days_to_archive", "must be given, or days_to_expire")
        if self.days_to_archive is not None and self.days_to_expire is not None:
            raise Invalid("days_to_expire", "must be left out where days_to_archive is given; make two policies")
        names = (self.criteria_id is not None) + (self.criteria_name is not None)
        if self.criteria_type == "user" and self.criteria_name is not None:
            raise Invalid("criteria_name", "must be left out where criteria_type is user")
        if self.criteria_type == "namespace" and (self.criteria_id is not None or self.criteria_name is None):
            raise Invalid("criteria_name", "must name the namespace, which has no id")
        if self.criteria_type in ("app", "category") and names != 1:
            raise Invalid("criteria_id", f"must tell the {self.criteria_type}, or criteria_name; not both")


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


class PolicyList(BaseModel):
    """The policies of a user, oldest first."""

    policies: list[Policy]


MAX_PAGE_SIZE = 100


class UpcomingItem(BaseModel):
    """A memory that will expire or be archived, and why."""

    model_config = ConfigDict(from_attributes=True)

    memory_id: UUID
    content: str
    app_name: str
    namespace: str
    created_at: datetime
    at: datetime = Field(
        description="When it is due. A policy's job follows within the hour; an `expires_at` holds at once."
    )
    action: Action
    policy_id: UUID | None = Field(description="The policy by which; null: its own `expires_at`.")


@dataclass(frozen=True, slots=True)
class UpcomingQuery:
    """The number of days to look ahead, and the page."""

    within_days: int = 7
    page: int = 1
    size: int = 50


class UpcomingPage(BaseModel):
    """A page of what will expire or be archived, soonest first."""

    items: list[UpcomingItem]
    total: int
    page: int
    size: int


@dataclass(frozen=True, slots=True)
class Selection:
    """The memories with these ids, or those that match a query."""

    ids: tuple[UUID, ...] = ()
    query: MemoryQuery | None = None


@dataclass(frozen=True, slots=True)
class BulkChange:
    """A change of many memories: a state, a category to file them under as well, or an expiry. Exactly one is set."""

    state: State | None = None
    category: str | None = None
    expiry: Expiry | None = None


class BulkChanged(BaseModel):
    """The result of a change of many memories."""

    changed: int = Field(description="The number of memories that changed.")
    action: UUID | None = Field(description="The id to undo it for some minutes; null: there is nothing to undo.")
