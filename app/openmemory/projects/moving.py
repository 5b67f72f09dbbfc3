"""Gives a namespace another name, or puts its contents into another one, with the rules that name it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import func, text

from openmemory.access import rule_cache
from openmemory.database.engine import Tx
from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.memories import changes
from openmemory.memories.models import Memory
from openmemory.memories.state import State
from openmemory.projects import singletons
from openmemory.projects.schemas import ProjectMoved
from openmemory.sources import lifecycle
from openmemory.sources.models import Source, SourceKind

SECONDS = 600
"""The time that each statement of a move may take."""

_THERE = text(
    """
    SELECT EXISTS (SELECT FROM memories WHERE user_id = :user AND namespace = :name)
        OR EXISTS (SELECT FROM sources WHERE user_id = :user AND namespace = :name)
        OR EXISTS (SELECT FROM projects WHERE user_id = :user AND namespace = :name)
    """
)
# Rules and policies that name a namespace. A move must neither show memories to an app nor hide them from one.
_RULES = {
    "rules": text(
        """
        SELECT subject_id::text, effect FROM access_controls
        WHERE user_id = :user AND object_type = 'namespace' AND object_name = :name
        """
    ),
    "archive policies": text(
        """
        SELECT action, to_jsonb(p) - 'id' - 'criteria_name' - 'created_at' - 'updated_at'
        FROM archive_policies AS p WHERE user_id = :user AND criteria_name = :name
        """
    ),
}
_RENAME_RULES = (
    """
    UPDATE access_controls SET object_name = :new
    WHERE user_id = :user AND object_type = 'namespace' AND object_name = :old
    """,
    "UPDATE archive_policies SET criteria_name = :new WHERE user_id = :user AND criteria_name = :old",
    """
    UPDATE api_keys SET namespaces = array_replace(namespaces, :old, :new)
    WHERE user_id = :user AND :old = ANY(namespaces)
    """,
)
_DROP_RULES = (
    """
    DELETE FROM access_controls WHERE user_id = :user AND object_type = 'namespace' AND object_name = :old
    """,
    "DELETE FROM archive_policies WHERE user_id = :user AND criteria_name = :old",
)

# An app has one memory of a text in a namespace.
_REPEATED = text(
    """
    SELECT m.id FROM memories AS m JOIN memories AS o
        ON o.user_id = m.user_id AND o.namespace = :new AND o.app_id = m.app_id AND o.hash = m.hash
            AND o.state = 'active'
    WHERE m.user_id = :user AND m.namespace = :old AND m.state = 'active'
    """
)
_BOTH = text(
    """
    SELECT s.id AS old_id, o.id AS new_id, s.kind, s.locator,
        (s.state = 'active', s.updated_at) > (o.state = 'active', o.updated_at) AS newer
    FROM sources AS s JOIN sources AS o
        ON o.user_id = s.user_id AND o.namespace = :new AND o.kind = s.kind AND o.locator = s.locator
            AND (o.app_id = s.app_id OR (s.kind = 'conversation' AND s.hash IS NOT NULL AND o.hash IS NOT NULL
                AND s.state = 'active' AND o.state = 'active'))
    WHERE s.user_id = :user AND s.namespace = :old ORDER BY s.kind, s.locator, s.id
    """
)
_MOVE = {
    ItemKind.MEMORY: text(
        "UPDATE memories SET namespace = :new WHERE user_id = :user AND namespace = :old RETURNING id"
    ),
    ItemKind.PASSAGE: text(
        """
        UPDATE passages SET namespace = :new, revision = revision + 1
        WHERE user_id = :user AND namespace = :old RETURNING id
        """
    ),
}
_REST = (
    "UPDATE sources SET namespace = :new WHERE user_id = :user AND namespace = :old",
    """
    UPDATE captures SET namespace = :new
    WHERE user_id = :user AND namespace = :old AND status IN ('pending', 'working')
    """,
    """
    INSERT INTO anchors (user_id, namespace, head, commit, reachable, checked_at)
    SELECT user_id, :new, head, commit, reachable, checked_at FROM anchors WHERE user_id = :user AND namespace = :old
    ON CONFLICT DO NOTHING
    """,
    "DELETE FROM anchors WHERE user_id = :user AND namespace = :old",
    # If both are registered, the registration that counts in the other project goes on counting there. Further ones of
    # this project come after it.
    """
    DELETE FROM projects WHERE user_id = :user AND namespace = :old
        AND EXISTS (SELECT FROM projects WHERE user_id = :user AND namespace = :new)
        AND (
            id = (SELECT id FROM projects WHERE user_id = :user AND namespace = :old ORDER BY created_at, id LIMIT 1)
            OR app_id IN (SELECT app_id FROM projects WHERE user_id = :user AND namespace = :new))
    """,
    """
    UPDATE projects SET namespace = :new, name = CASE WHEN name = :old THEN :new ELSE name END, updated_at = now(),
        created_at = CASE WHEN EXISTS (SELECT FROM projects WHERE user_id = :user AND namespace = :new)
            THEN now() ELSE created_at END
    WHERE user_id = :user AND namespace = :old
    """,
    # They count words by namespace. The next sync counts them anew, and until then the searches do.
    "DELETE FROM lexical_statistics WHERE user_id = :user",
    "DELETE FROM passage_statistics WHERE user_id = :user",
)


async def move(tx: Tx, caller: Caller, old: str, new: str, *, merge: bool) -> ProjectMoved | None:
    """Move everything in a namespace to another one. Returns None if the namespace is empty.

    Raises:
        ConflictError: the other one holds something and `merge` is false, rules name only one of them, or both have
            a conversation or document of one name and app, or a session of one number.
    """
    names = {"user": caller.user_id, "old": old, "new": new}
    await rule_cache.hold(tx, [caller.user_id])
    if not await tx.scalar(_THERE, names | {"name": old}):
        return None
    if not merge and await tx.scalar(_THERE, names | {"name": new}):
        raise ConflictError(
            f"There is something in {new!r} already.",
            code="project_exists",
            hint="Merge the projects, or choose another name.",
        )
    await _move_rules(tx, names, merge=merge)
    older = await singletons.clashes(tx, caller, [old, new])
    await changes.change_state(tx, caller, Memory.id == func.any(older), State.ARCHIVED)
    repeated = list(await tx.scalars(_REPEATED, names))
    await changes.change_state(tx, caller, Memory.id == func.any(repeated), State.DELETED)
    replaced = await _find_replaced_files(tx, names)
    await lifecycle.erase(tx, caller, Source.id == func.any(replaced))
    moved = dict[ItemKind, int]()
    for kind, statement in _MOVE.items():
        ids = list(await tx.scalars(statement, names))
        await outbox.add_entries(tx, kind, ids)
        moved[kind] = len(ids)
    for rest in _REST:
        await tx.execute(text(rest), names)
    return ProjectMoved(new, moved[ItemKind.MEMORY], moved[ItemKind.PASSAGE], len(repeated), len(older), len(replaced))


async def _move_rules(tx: Tx, names: dict[str, Any], *, merge: bool) -> None:
    """Rename what names the namespace. Where both exist, the same must hold for both."""
    for what, statement in _RULES.items():
        ours = sorted(repr(row) for row in await tx.execute(statement, names | {"name": names["old"]}))
        theirs = sorted(repr(row) for row in await tx.execute(statement, names | {"name": names["new"]}))
        if merge and ours != theirs:
            raise ConflictError(
                f"The {what} that name {names['old']!r} and {names['new']!r} differ.",
                code="rules_differ",
                hint="Make them equal for both, so that the merge neither shows nor hides memories.",
            )
        if theirs and not merge:
            raise ConflictError(f"There are {what} that name {names['new']!r}.", code="rules_differ")
    for rule in _DROP_RULES if merge else _RENAME_RULES:
        await tx.execute(text(rule), names)
    await rule_cache.changed(tx, [names["user"]])


async def _find_replaced_files(tx: Tx, names: dict[str, Any]) -> list[UUID]:
    """Finds files that both namespaces have. Returns the older copy of each, or the deleted one."""
    both = (await tx.execute(_BOTH, names)).all()
    others = [row for row in both if row.kind != SourceKind.FILE.value]
    if others:
        first = others[0]
        raise ConflictError(
            f"Both have the {first.kind} {first.locator!r}"
            + (f", and {len(others) - 1} more are in both." if len(others) > 1 else "."),
            code="source_exists",
            hint="Erase one of the two, also if it is deleted.",
        )
    return [row.new_id if row.newer else row.old_id for row in both]
