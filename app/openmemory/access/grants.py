"""Grants: the allow and deny rules that a user sets for their apps, and explanations of their effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import Text, and_, cast, column, delete, exists, func, literal, or_, select, table, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import aliased

from openmemory.access import rule_cache
from openmemory.access.explanation import hindrance, reason
from openmemory.access.models import AccessControl, App
from openmemory.access.readable import counts, keys_of, readable_by, wrote
from openmemory.access.schemas import Grant, GrantCreate, GrantExplanation
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.names import category_name

_OBJECT_EXISTS = {
    "memory": text("SELECT true FROM memories WHERE id = CAST(:object AS uuid) AND user_id = :user"),
    "app": text("SELECT true FROM apps WHERE id = CAST(:object AS uuid) AND owner_id = :user"),
    # Categories are shared by name, so their existence reveals what others assign, unless the user has it too.
    "category": text(
        """
        SELECT true WHERE EXISTS (
            SELECT FROM memory_categories AS c WHERE c.category_id = CAST(:object AS uuid) AND c.user_id = :user
        ) OR EXISTS (
            SELECT FROM access_controls
            WHERE user_id = :user AND object_key = 'category:' || CAST(CAST(:object AS uuid) AS text)
        )
        """
    ),
}
_MAKE_CATEGORY = text("INSERT INTO categories (name) VALUES (:name) ON CONFLICT DO NOTHING")
_CATEGORY = text("SELECT id FROM categories WHERE name = :name FOR KEY SHARE")
_CATEGORIES = table("categories", column("id"), column("name"))
_AT_ONE_MOMENT = text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")


class Grants:
    """Creates, lists, revokes and explains rules. Only the user themself may, never an app.

    `memories` is the mapped class that the rules are about. It belongs to a higher-level package.
    """

    def __init__(self, database: Database, memories: Any) -> None:
        self._database = database
        self._memories = memories

    @retry_on_conflict
    async def create(self, caller: Caller, new: GrantCreate) -> Grant:
        """Create a rule. If the same rule exists, it is returned instead.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the object does not fit its type.
            NotFound: the app or the object does not belong to the user.
        """
        _only_owner(caller)
        caller.may_write()
        async with self._database.transaction() as tx:
            await rule_cache.hold(tx, [caller.user_id])
            subject = None if new.app is None else await _app_id(tx, caller, new.app)
            values: dict[str, Any] = {
                "user_id": caller.user_id, "subject_id": subject, "effect": new.effect, "object_type": new.object_type,
                "object_id": None, "object_name": None,
            }  # fmt: skip
            values |= await _object(tx, caller, new)
            if (await tx.execute(insert(AccessControl).values(values).on_conflict_do_nothing())).rowcount:
                await rule_cache.changed(tx, [caller.user_id])
            same = [getattr(AccessControl, name).is_not_distinct_from(value) for name, value in values.items()]
            grant = Grant.model_validate((await tx.execute(_grants().where(*same))).one())
            await audit_log.record(tx, caller, AuditAction.GRANT_CREATE, [grant.id], detail=new.model_dump())
        return grant

    async def list(self, caller: Caller, *, app: str | None = None) -> list[Grant]:
        """Returns the user's rules, for one app or all, oldest first."""
        _only_owner(caller)
        caller.may_read()
        query = _grants().where(AccessControl.user_id == caller.user_id)
        if app is not None:
            query = query.where(App.name == app)
        async with self._database.transaction() as tx:
            grants = [Grant.model_validate(row) for row in await tx.execute(query.order_by(AccessControl.created_at))]
            await audit_log.record(tx, caller, AuditAction.GRANT_LIST)
        return grants

    @retry_on_conflict
    async def revoke(self, caller: Caller, grant_id: UUID) -> None:
        """Revoke a rule.

        Raises:
            NotFound: the user has no such rule.
        """
        _only_owner(caller)
        caller.may_write()
        mine = (AccessControl.id == grant_id) & (AccessControl.user_id == caller.user_id)
        async with self._database.transaction() as tx:
            await rule_cache.hold(tx, [caller.user_id])
            if (await tx.execute(delete(AccessControl).where(mine))).rowcount == 0:
                raise NotFound("Grant not found", code="grant_not_found")
            await rule_cache.changed(tx, [caller.user_id])
            await audit_log.record(tx, caller, AuditAction.GRANT_REVOKE, [grant_id])

    async def explain(self, caller: Caller, app: str, memory_id: UUID) -> GrantExplanation:
        """Explains whether an app may read a memory in any state, and which rule decides.

        Raises:
            Forbidden: the caller is an app.
            NotFound: the app or the memory does not belong to the user.
        """
        _only_owner(caller)
        caller.may_read()
        async with self._database.transaction() as tx:
            await tx.execute(_AT_ONE_MOMENT)
            app_id = await tx.scalar(select(App.id).where(App.owner_id == caller.user_id, App.name == app))
            if app_id is None:
                raise NotFound("App not found", code="app_not_found")
            app_caller = replace(caller, app_id=app_id, app=app, owner=False)
            facts = await self._facts(tx, app_caller, memory_id)
            rules = await self._applicable_rules(tx, app_caller, memory_id)
            await audit_log.record(tx, caller, AuditAction.GRANT_EXPLAIN, [memory_id], detail={"app": app})
        grants = [Grant.model_validate(row) for row in rules]
        return GrantExplanation(
            allowed=facts.allowed,
            reason=reason(app_caller, facts, next(iter(rules), None)),
            rule=grants[0] if grants and hindrance(facts) is None else None,
            considered=grants,
        )

    async def _facts(self, tx: Tx, app: Caller, memory_id: UUID) -> Any:
        """Returns a memory's row of facts for `reason`, with the decision of `readable_by`."""
        rows = self._memories
        has_allow_rules = exists().where(AccessControl.subject_id == app.app_id, AccessControl.effect == "allow")
        result = await tx.execute(
            select(
                App.is_active,
                rows.state,
                func.coalesce(rows.expires_at <= func.now(), False).label("expired"),
                func.coalesce(rows.valid_until <= func.now(), False).label("outdated"),
                wrote(rows, literal(app.app_id)).label("own"),
                has_allow_rules.label("listed"),
                readable_by(app, rows).label("allowed"),
            )
            .join(App, App.id == app.app_id)
            .where(rows.id == memory_id, rows.user_id == app.user_id),
            app.parameters,
        )
        if (row := result.one_or_none()) is None:
            raise NotFound("Memory not found", code="memory_not_found")
        return row

    async def _applicable_rules(self, tx: Tx, app: Caller, memory_id: UUID) -> Sequence[Any]:
        """Returns the rules for an app that apply to a memory, in the order of precedence."""
        rows = self._memories
        query = (
            _grants()
            .join(rows, rows.id == memory_id)
            .where(
                AccessControl.user_id == app.user_id,
                or_(AccessControl.subject_id == app.app_id, AccessControl.subject_id.is_(None)),
                AccessControl.object_key == func.any(keys_of(rows)),
                counts(rows),
            )
            .order_by(
                AccessControl.subject_id.is_(None),
                AccessControl.effect == "allow",
                AccessControl.created_at,
                AccessControl.id,
            )
        )
        return (await tx.execute(query)).all()


def _only_owner(caller: Caller) -> None:
    caller.must_be_owner("see and change the rules of their apps")


def _grants() -> Any:
    object_app = aliased(App)
    return (
        select(
            AccessControl.id,
            AccessControl.effect,
            App.name.label("app"),
            AccessControl.object_type,
            func.coalesce(AccessControl.object_name, cast(AccessControl.object_id, Text)).label("object"),
            func.coalesce(AccessControl.object_name, object_app.name, _CATEGORIES.c.name).label("object_name"),
            AccessControl.created_at,
        )
        .outerjoin(App, App.id == AccessControl.subject_id)
        .outerjoin(object_app, and_(AccessControl.object_type == "app", object_app.id == AccessControl.object_id))
        .outerjoin(_CATEGORIES, _CATEGORIES.c.id == AccessControl.object_id)
    )


async def _app_id(tx: Tx, caller: Caller, name: str) -> UUID:
    """Returns the id of the user's app. Creates the app if it is new, so that a rule can precede its first call."""
    await tx.execute(insert(App).values(owner_id=caller.user_id, name=name).on_conflict_do_nothing())
    app_id = await tx.scalar(select(App.id).where(App.owner_id == caller.user_id, App.name == name))
    if app_id is None:
        raise NotFound("User not found", code="user_not_found")
    return app_id


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
        return {"object_id": await _by_name(tx, caller, new)}
    if await tx.scalar(_OBJECT_EXISTS[new.object_type], {"object": id_, "user": caller.user_id}) is None:
        raise NotFound(f"{new.object_type.capitalize()} not found", code=f"{new.object_type}_not_found")
    return {"object_id": id_}


async def _by_name(tx: Tx, caller: Caller, new: GrantCreate) -> UUID:
    if new.object_type == "app":
        return await _app_id(tx, caller, new.object or "")
    category = {"name": category_name(new.object or "")}
    await tx.execute(_MAKE_CATEGORY, category)
    return UUID(str(await tx.scalar(_CATEGORY, category)))
