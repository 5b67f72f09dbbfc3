"""Restores a user, their apps and rules from an archive: temporary tables, and set-based statements that apply them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from psycopg.errors import ForeignKeyViolation
from sqlalchemy import Row, bindparam, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.exc import IntegrityError

from openmemory.access import rule_cache
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import UNKNOWN, Caller

DERIVED = """CAST(overlay(overlay(md5(CAST(:user AS text) || ' ' || CAST({id} AS text))
    PLACING '8' FROM 13 FOR 1) PLACING 'a' FROM 17 FOR 1) AS uuid)"""
"""A replacement for an id that is taken, the same at every import into the same user: a UUID of version 8, derived from
the user's id and the original id."""

_OTHER_IDS = f"""
    SELECT a.id AS present, i.id, a.name FROM apps AS a
    JOIN (SELECT DISTINCT ON (name) * FROM incoming_apps ORDER BY name, place) AS i ON i.name = a.name AND i.id <> a.id
    WHERE a.owner_id = :user AND i.id <> '{UNKNOWN}'
"""  # noqa: S608 - only constants are put in
"""The user's apps that have other ids in the archive."""

# Locks the apps, unless it is plain already that something refers to them.
_EMPTY = text(
    """
    SELECT count(*) FROM (
        SELECT FROM apps WHERE owner_id = :user AND NOT EXISTS (SELECT FROM memories WHERE user_id = :user)
        ORDER BY id FOR UPDATE
    ) AS locked
    """
)
_ADOPT = text(load_sql(__name__, "adopt", other_ids=_OTHER_IDS))
_OTHER_APPS = text(f"SELECT name FROM ({_OTHER_IDS}) AS o ORDER BY name")  # noqa: S608 - as above
_IS_TAKEN = text("SELECT EXISTS (SELECT FROM users WHERE id = :id)")

_APPS_TO_FIND = text("ALTER TABLE incoming_apps ADD target uuid")
_MATCH_APPS = text(
    """
    UPDATE incoming_apps AS i SET target = a.id FROM apps AS a
    WHERE i.target IS NULL AND a.owner_id = :user AND a.name = i.name
    """
)
# Paused on either side means paused: an import never reactivates an app that its user has paused.
_REPLACE_APPS = text(
    """
    UPDATE apps AS a SET description = i.description, metadata = i.metadata, is_active = a.is_active AND i.is_active,
        created_at = least(a.created_at, i.created_at), updated_at = i.updated_at
    FROM (SELECT DISTINCT ON (target) * FROM incoming_apps WHERE target IS NOT NULL ORDER BY target, place) AS i
    WHERE a.id = i.target AND (a.description, a.metadata, a.is_active, a.created_at, a.updated_at) IS DISTINCT FROM
        (i.description, i.metadata, a.is_active AND i.is_active, least(a.created_at, i.created_at), i.updated_at)
    """
)
_ADD_APPS = """
    INSERT INTO apps (id, owner_id, name, description, metadata, is_active, created_at, updated_at)
    SELECT {id}, :user, i.name, i.description, i.metadata, i.is_active, i.created_at, i.updated_at
    FROM (SELECT DISTINCT ON (name) * FROM incoming_apps WHERE target IS NULL ORDER BY name, place) AS i
    WHERE {id} <> '{unknown}'
    ON CONFLICT DO NOTHING
"""
_ADD_APPS_AS_THEY_WERE = text(_ADD_APPS.format(id="i.id", unknown=UNKNOWN))
_ADD_APPS_ANEW = text(_ADD_APPS.format(id="gen_random_uuid()", unknown=UNKNOWN))

_FILL_USER = text(load_sql(__name__, "fill_user")).bindparams(bindparam("metadata", type_=JSONB))

# A rule about an object exists once. An existing rule is kept, whatever its id.
_ADD_RULES = text(
    f"""
    INSERT INTO access_controls (id, user_id, subject_id, object_type, object_id, object_name, effect, created_at)
    SELECT CASE WHEN e.id IS NULL THEN r.id ELSE {DERIVED.format(id="r.id")} END,
        :user, r.subject_target, r.object_type, r.object_target, r.object_name, r.effect, r.created_at
    FROM incoming_access_controls AS r LEFT JOIN access_controls AS e ON e.id = r.id
    WHERE r.problem IS NULL
    ORDER BY r.place
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - only constants are put in
)
_RULES_TO_FIND = text(
    "ALTER TABLE incoming_access_controls ADD subject_target uuid, ADD object_target uuid, ADD problem text"
)
_FIND_RULES = text(load_sql(__name__, "find_rules"))


@dataclass(frozen=True, slots=True)
class ComparedIds:
    """The user and apps whose ids differed from those in the archive: `user NAME`, `app NAME`."""

    adopted_names: list[str]
    """They have the archive's ids now."""
    unchanged_names: list[str]
    """They keep the ids that they had."""
    former_user_id: UUID | None = None


async def adopt_ids(tx: Tx, caller: Caller, user: Mapping[str, Any] | None) -> tuple[Caller, ComparedIds]:
    """Give the user, and their apps of the same names, the ids from the archive if nothing refers to their present ones
    yet. Returns the caller with the new ids. `user`: the user's row of the archive.

    A user's id follows only an archive of the same user, and only if the principal acts for every user: it is unique
    among all users, and past entries of the audit log have it.
    """
    id_ = UUID(user["id"]) if user is not None and user["user_id"] == caller.user else None
    same_user = id_ not in (None, caller.user_id, UNKNOWN)
    of_user = [f"user {caller.user}"] if same_user else []
    of_apps = [f"app {name}" for name in await tx.scalars(_OTHER_APPS, {"user": caller.user_id})]
    new = caller.user_id
    if id_ is not None and same_user and caller.principal.user is None:
        new = caller.user_id if await tx.scalar(_IS_TAKEN, {"id": id_}) else id_
    if new == caller.user_id and not of_apps:
        return caller, ComparedIds([], of_user)
    apps = await _adopt_apps(tx, caller, new)
    if not apps:
        return caller, ComparedIds([], of_user + of_apps)
    adopted_names = [f"app {app.name}" for app in apps if app.adopted]
    unchanged_names = [name for name in of_apps if name not in adopted_names]
    app_id = next((app.id for app in apps if app.name == caller.app), caller.app_id)
    new_caller = replace(caller, user_id=new, app_id=app_id)
    if new == caller.user_id:
        return new_caller, ComparedIds(adopted_names, of_user + unchanged_names)
    return new_caller, ComparedIds(of_user + adopted_names, unchanged_names, caller.user_id)


async def _adopt_apps(tx: Tx, caller: Caller, new: UUID) -> Sequence[Row[Any]]:
    """The user's apps after the change of ids; none if there was no change, because something refers to the present
    ids."""
    await rule_cache.hold(tx, [caller.user_id])
    try:
        async with tx.begin_nested():
            if not await tx.scalar(_EMPTY, {"user": caller.user_id}):
                return ()
            return (await tx.execute(_ADOPT, {"user": caller.user_id, "new": new})).all()
    except IntegrityError as error:
        if isinstance(error.orig, ForeignKeyViolation):
            return ()
        raise


async def restore_apps(tx: Tx, caller: Caller, *, overwrite: bool) -> int:
    """Match the apps by name and create missing ones. Returns how many were created or changed."""
    mine = {"user": caller.user_id}
    await tx.execute(_APPS_TO_FIND)
    await tx.execute(_MATCH_APPS, mine)
    count = (await tx.execute(_REPLACE_APPS)).rowcount if overwrite else 0
    # With the original id if it is free, otherwise with another one.
    for add in (_ADD_APPS_AS_THEY_WERE, _ADD_APPS_ANEW):
        count += (await tx.execute(add, mine)).rowcount
        await tx.execute(_MATCH_APPS, mine)
    return count


async def restore_user(tx: Tx, caller: Caller, user: Mapping[str, Any]) -> None:
    """Fill the user's empty fields. `created_at` becomes the earlier of both times."""
    values = {name: user[name] for name in ("name", "email", "metadata", "created_at")}
    await tx.execute(_FILL_USER, {"user": caller.user_id, **values})


async def drop_unbound_rules(tx: Tx) -> list[str]:
    """Remove the rules that name no app, and return their ids. OpenMemory looked rules up by the id of the app, and
    never applied such a rule; here it would apply to every app."""
    unbound = text("DELETE FROM incoming_access_controls WHERE subject_id IS NULL RETURNING id")
    return [str(id_) for id_ in await tx.scalars(unbound)]


async def restore_rules(tx: Tx, caller: Caller) -> int:
    """Create the rules that do not exist yet; returns how many. The memories must have been restored before."""
    await tx.execute(_RULES_TO_FIND)
    await tx.execute(_FIND_RULES, {"user": caller.user_id})
    count = (await tx.execute(_ADD_RULES, {"user": caller.user_id})).rowcount
    if count:
        await rule_cache.changed(tx, [caller.user_id])
    return count
