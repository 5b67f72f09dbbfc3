"""Grants: the allow and deny rules that a user makes for their apps."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Text, cast, delete, func, select, text
from sqlalchemy.dialects.postgresql import insert

from app.access import journal
from app.access.caller import Caller
from app.access.journal import Event
from app.access.models import AccessControl, App
from app.config import LONGEST_NAME
from app.database import Database, Tx
from app.errors import Invalid, NotFound

Effect = Literal["allow", "deny"]
ObjectType = Literal["memory", "app", "namespace", "category", "all"]

_OBJECT_EXISTS = {
    "memory": text("SELECT true FROM memories WHERE id = CAST(:object AS uuid) AND user_id = :user"),
    "app": text("SELECT true FROM apps WHERE id = CAST(:object AS uuid) AND owner_id = :user"),
    "category": text("SELECT true FROM categories WHERE id = CAST(:object AS uuid)"),
}


class GrantCreate(BaseModel):
    """A rule to make.

    `app` is the subject's name, or null for every app of the user. `object` is the id of a memory, an app's or a
    category's name or id, or a namespace's name; none for everything.
    """

    model_config = ConfigDict(extra="forbid")

    effect: Effect
    app: str | None = Field(default=None, max_length=LONGEST_NAME)
    object_type: ObjectType
    object: str | None = Field(default=None, max_length=LONGEST_NAME)


class Grant(BaseModel):
    """A rule that is in force."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    effect: Effect
    app: str | None = Field(description="The app it speaks to; null: every app of the user.")
    object_type: ObjectType
    object: str | None = Field(description="The memory's id, the app's or category's id, or the namespace's name.")
    created_at: datetime


class Grants:
    """Making, listing and revoking rules. Only the user may, never an app."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, caller: Caller, new: GrantCreate) -> Grant:
        """Make a rule; the same rule again is answered with the one that is in force.

        Raises:
            Forbidden: an app asks.
            Invalid: the object does not fit its type.
            NotFound: the app or the object is not the user's.
        """
        _only_owner(caller)
        caller.may_write()
        async with self._database.transaction() as tx:
            subject = None if new.app is None else await _app_id(tx, caller, new.app)
            values: dict[str, Any] = {"user_id": caller.user_id, "subject_id": subject, "effect": new.effect}
            values |= await _object(tx, caller, new)
            await tx.execute(
                insert(AccessControl).values(values | {"object_type": new.object_type}).on_conflict_do_nothing()
            )
            same = [
                AccessControl.user_id == caller.user_id,
                AccessControl.subject_id.is_not_distinct_from(subject),
                AccessControl.object_type == new.object_type,
                AccessControl.object_id.is_not_distinct_from(values.get("object_id")),
                AccessControl.object_name.is_not_distinct_from(values.get("object_name")),
                AccessControl.effect == new.effect,
            ]
            grant = Grant.model_validate((await tx.execute(_grants().where(*same))).one())
            await journal.record(tx, caller, Event.GRANT_CREATE, [grant.id], detail=_told(new))
        return grant

    async def list(self, caller: Caller, *, app: str | None = None) -> list[Grant]:
        """The user's rules, those of one app or all, oldest first."""
        _only_owner(caller)
        caller.may_read()
        query = _grants().where(AccessControl.user_id == caller.user_id)
        if app is not None:
            query = query.where(App.name == app)
        async with self._database.transaction() as tx:
            found = [Grant.model_validate(row) for row in await tx.execute(query.order_by(AccessControl.created_at))]
            await journal.record(tx, caller, Event.GRANT_LIST)
        return found

    async def revoke(self, caller: Caller, grant_id: UUID) -> None:
        """End a rule.

        Raises:
            NotFound: no such rule of this user.
        """
        _only_owner(caller)
        caller.may_write()
        mine = (AccessControl.id == grant_id) & (AccessControl.user_id == caller.user_id)
        async with self._database.transaction() as tx:
            if (await tx.execute(delete(AccessControl).where(mine))).rowcount == 0:
                raise NotFound("Grant not found", code="grant_not_found")
            await journal.record(tx, caller, Event.GRANT_REVOKE, [grant_id])


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and change the rules of their apps")


def _told(new: GrantCreate) -> dict[str, Any]:
    """What the audit log tells of a new rule."""
    return {"effect": new.effect, "app": new.app, "object_type": new.object_type, "object": new.object}


def _grants() -> Any:
    return select(
        AccessControl.id,
        AccessControl.effect,
        App.name.label("app"),
        AccessControl.object_type,
        func.coalesce(AccessControl.object_name, cast(AccessControl.object_id, Text)).label("object"),
        AccessControl.created_at,
    ).outerjoin(App, App.id == AccessControl.subject_id)


async def _app_id(tx: Tx, caller: Caller, name: str) -> UUID:
    """The id of the user's app; made when it is new, so that a rule can be there before the app first calls."""
    await tx.execute(insert(App).values(owner_id=caller.user_id, name=name).on_conflict_do_nothing())
    found = await tx.scalar(select(App.id).where(App.owner_id == caller.user_id, App.name == name))
    if found is None:
        raise NotFound("User not found", code="user_not_found")
    return found


async def _object(tx: Tx, caller: Caller, new: GrantCreate) -> dict[str, Any]:
    if new.object_type == "all":
        if new.object is not None:
            raise Invalid("object", "must be left out when object_type is 'all'")
        return {}
    if not new.object or not new.object.strip() or "\x00" in new.object:
        raise Invalid("object", f"must name the {new.object_type} that the rule is about")
    if new.object_type == "namespace":
        return {"object_name": new.object}
    try:
        id_ = UUID(new.object)
    except ValueError:
        if new.object_type == "memory":
            raise Invalid("object", f"must be the id (a UUID) of a memory, not {new.object[:80]!r}") from None
        id_ = await _by_name(tx, caller, new)
    if await tx.scalar(_OBJECT_EXISTS[new.object_type], {"object": id_, "user": caller.user_id}) is None:
        raise NotFound(f"{new.object_type.capitalize()} not found", code=f"{new.object_type}_not_found")
    return {"object_id": id_}


async def _by_name(tx: Tx, caller: Caller, new: GrantCreate) -> UUID:
    if new.object_type == "app":
        return await _app_id(tx, caller, new.object or "")
    found = await tx.scalar(text("SELECT id FROM categories WHERE name = :name"), {"name": new.object})
    if found is None:
        raise NotFound("Category not found", code="category_not_found")
    return UUID(str(found))
