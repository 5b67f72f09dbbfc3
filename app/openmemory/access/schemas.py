"""Requests and results of apps, grants and keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.config.settings import MAX_NAME_LENGTH
from openmemory.identity.principal import Scope
from openmemory.serialization.omission import is_none
from openmemory.serialization.timestamps import DateOrTime, NaiveTime

Effect = Literal["allow", "deny"]


ObjectType = Literal["memory", "app", "namespace", "category", "all"]


GrantEffect = Annotated[Effect, Field(description="What the rule does.")]
GrantType = Annotated[ObjectType, Field(description="The type of the object.")]
GrantObject = Annotated[
    str | None,
    Field(
        max_length=MAX_NAME_LENGTH,
        description="What the rule is about: the id of a memory, or its first characters; the name or id of an app or a"
        " category, which need not exist yet; the name of a namespace; none for all.",
    ),
]
GrantApp = Annotated[
    str | None, Field(max_length=MAX_NAME_LENGTH, description="The app that the rule is for; left out: every app.")
]


class GrantCreate(BaseModel):
    """A rule to make."""

    model_config = ConfigDict(extra="forbid")

    effect: GrantEffect
    app: GrantApp = None
    object_type: GrantType
    object: GrantObject = None


class Grant(BaseModel):
    """A rule that is in force."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    effect: Effect
    app: str | None = Field(description="The app it speaks to; null: every app of the user.")
    object_type: ObjectType
    object: str | None = Field(description="The memory's id, the app's or category's id, or the namespace's name.")
    object_name: str | None = Field(description="The name of the app, category or namespace.")
    created_at: datetime


class GrantExplanation(BaseModel):
    """The decision on one memory for one app, and its reason."""

    allowed: bool
    reason: str = Field(description="Why, in words.")
    rule: Grant | None = Field(description="The rule that decides; null: none does.")
    considered: list[Grant] = Field(description="All rules that speak of the memory, in the order of precedence.")


class GrantList(BaseModel):
    """The rules of a user, oldest first."""

    grants: list[Grant]


AppSort = Literal["name", "memories", "memories_accessed"]


RECENT_DAYS = 7
"""The days whose writes and accesses are counted as recent."""


class AppSummary(BaseModel):
    """An app and how much it wrote and read."""

    id: UUID
    name: str
    is_active: bool = Field(description="A paused app (false) neither reads nor writes.")
    total_memories_created: int = Field(description="Memories it wrote that are not deleted.")
    total_memories_accessed: int = Field(description="Different memories it accessed.")
    recently_created: int | None = Field(
        None,
        description=f"Those of them that it wrote in the last {RECENT_DAYS} days; only with `activity`.",
        exclude_if=is_none,
    )
    recently_accessed: int | None = Field(
        None,
        description=f"Those of them that it accessed in the last {RECENT_DAYS} days; only with `activity`.",
        exclude_if=is_none,
    )
    last_accessed: NaiveTime | None = Field(
        None, description="UTC without an offset; only with `activity`, and if it ever did.", exclude_if=is_none
    )
    last_created: NaiveTime | None = Field(
        None, description="When the newest of its memories was created; as `last_accessed`.", exclude_if=is_none
    )


class AppPage(BaseModel):
    """A page of a user's apps."""

    total: int
    page: int
    page_size: int
    apps: list[AppSummary]


class AppDetail(BaseModel):
    """One app. Unlike the list of apps, it counts deleted memories too, and every access."""

    model_config = ConfigDict(from_attributes=True)

    is_active: bool = Field(description="A paused app (false) neither reads nor writes.")
    total_memories_created: int = Field(description="Memories it wrote, deleted ones too.")
    total_memories_accessed: int = Field(description="Its accesses; several to one memory count each.")
    first_accessed: NaiveTime | None = Field(description="UTC without an offset.")
    last_accessed: NaiveTime | None = Field(description="UTC without an offset.")


class AppUpdated(BaseModel):
    """The result, in the words of OpenMemory."""

    status: Literal["success"] = "success"
    message: str = "Updated app details successfully"


KeyName = Annotated[
    str, Field(min_length=1, max_length=MAX_NAME_LENGTH, description="What it is for, such as `laptop`.")
]
KeyUser = Annotated[str | None, Field(description="The user it speaks for; made if new.")]
KeyOfEveryone = Annotated[bool, Field(description="It speaks for whatever user a request names.")]
KeyApp = Annotated[
    str | None, Field(description="The app it speaks for, made if new; left out: any app, and the user themself.")
]
KeyNamespaces = Annotated[
    list[str] | None,
    Field(min_length=1, max_length=100, description="The namespaces that it reaches; left out: all."),
]
KeyScopes = Annotated[list[Scope], Field(min_length=1, description="What it may do.")]
KeyEnd = Annotated[
    DateOrTime | None,
    Field(description="When it ends, a date, or a time with an offset; left out: never."),
]


class KeyCreate(BaseModel):
    """A key to make. Either `user_id` or `everyone` says whose it is."""

    model_config = ConfigDict(extra="forbid")

    name: KeyName
    user_id: KeyUser = None
    everyone: KeyOfEveryone = False
    app: KeyApp = None
    namespaces: KeyNamespaces = None
    scopes: KeyScopes = [Scope.READ, Scope.WRITE]
    expires_at: KeyEnd = None


class Key(BaseModel):
    """A key, without the key itself."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    prefix: str = Field(description="The beginning of the key, by which it is recognised.")
    name: str
    user_id: str | None = Field(description="The user it speaks for; null: every user.")
    app: str | None
    namespaces: list[str] | None
    scopes: list[Scope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To within a minute.")


class KeyCreated(Key):
    """A new key, shown this once."""

    key: str = Field(description="Keep it: it cannot be shown again.")


class KeyList(BaseModel):
    """Keys, newest first."""

    keys: list[Key]
