"""Plans the import of an archive: the target row of each memory, and whether that row is already up to date.

The temporary table `restored` is the plan. For each memory of the archive it holds the target row (`target`) and
whether that row is added, replaced or left unchanged (`fate`). `writing` executes the plan. Each step is one statement
for any number of memories.
"""

from __future__ import annotations

from sqlalchemy import func, text

from openmemory.access import restore as of_access
from openmemory.access import rule_cache
from openmemory.access.restore import DERIVED
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.fields import Archived, archived_as, names_of
from openmemory.memories.models import Memory
from openmemory.memories.state import State

_PLAN = (
    """
    CREATE TEMPORARY TABLE restored (
        id uuid, place integer, target uuid, renamed boolean, fate text, app_id uuid, superseded_by uuid,
        before memory_state, before_revision integer, before_text text, final memory_state,
        duplicate boolean DEFAULT false, edited boolean DEFAULT false, touched boolean DEFAULT false,
        revision integer) ON COMMIT DROP
    """,
    "CREATE TEMPORARY TABLE restored_assignments (memory uuid, category uuid, automatic boolean) ON COMMIT DROP",
    """
    CREATE TEMPORARY TABLE restored_revisions (
        memory uuid, revision integer, old_text text, new_text text, metadata jsonb, app_id uuid,
        changed_at timestamptz) ON COMMIT DROP
    """,
    "ALTER TABLE incoming_categories ADD target uuid",
)

_MATCH_CATEGORIES = text("UPDATE incoming_categories AS i SET target = c.id FROM categories AS c WHERE c.name = i.name")

# A memory whose id belongs to another user, or to a passage, gets a derived id, which is the same at every import. The
# derived id may also belong to another user, or be in the archive itself if that combines the exports of both users. A
# third user's import may have taken both derived ids.
_OTHER, _ANOTHER = DERIVED.format(id="i.id"), DERIVED.format(id="concat(i.id, ' again')")
_USER = text("SELECT id FROM users WHERE id = :user")
_RESOLVE = text(load_sql(__name__, "resolve", other=_OTHER, another=_ANOTHER))
_INDEX_PLAN = (
    "CREATE UNIQUE INDEX ON restored (target)", "CREATE INDEX ON restored (id)", "ANALYZE restored",
)  # fmt: skip
# In order of id, like every transaction that locks several memories.
_LOCK = text(
    """
    SELECT count(*) FROM (
        SELECT m.id FROM memories AS m JOIN restored AS r ON r.target = m.id AND r.fate = 'replace'
        ORDER BY m.id FOR NO KEY UPDATE OF m
    ) AS held
    """
)
_SUPERSEDE = text(
    """
    UPDATE restored AS r SET superseded_by = coalesce(
        (SELECT o.target FROM restored AS o WHERE o.id = i.superseded_by),
        (SELECT m.id FROM memories AS m WHERE m.id = i.superseded_by AND m.user_id = :user))
    FROM incoming_memories AS i WHERE i.id = r.id AND i.superseded_by IS NOT NULL
    """
)
_ASSIGN = text(load_sql(__name__, "assign"))
_CONTENT, _STAMPS = archived_as(Archived.CONTENT), archived_as(Archived.STAMP)
_COMPARE = text(
    f"""
    UPDATE restored AS r SET before = m.state, before_revision = m.revision, before_text = m.content,
        edited = ({names_of(_CONTENT, "m")}, m.app_id, m.superseded_by)
                IS DISTINCT FROM ({names_of(_CONTENT, "i")}, r.app_id, r.superseded_by)
            OR ARRAY(SELECT category_id FROM memory_categories AS c WHERE c.memory_id = m.id ORDER BY 1)
                <> ARRAY(SELECT category FROM restored_assignments AS f WHERE f.memory = m.id ORDER BY 1)
    FROM incoming_memories AS i, memories AS m
    WHERE i.id = r.id AND m.id = r.target AND r.fate = 'replace'
    """  # noqa: S608 - as above
)
_ACTIVE_ELSEWHERE = """
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    JOIN memories AS m ON m.user_id = :user AND m.namespace = i.namespace AND m.app_id = r.app_id AND m.hash = i.hash
        AND m.state = 'active'
    LEFT JOIN restored AS o ON o.target = m.id AND o.fate = 'replace'
    WHERE r.fate <> 'skip' AND i.state = 'active' AND o.id IS NULL
"""
_EXPIRED_DUPLICATES = text(f"SELECT DISTINCT m.id {_ACTIVE_ELSEWHERE} AND m.expires_at <= now()")
_EXACT_DUPLICATES = text(load_sql(__name__, "exact_duplicates", active_elsewhere=_ACTIVE_ELSEWHERE))
_TOUCH = text(
    f"""
    UPDATE restored AS r SET touched = r.edited
        OR (m.state, {names_of(_STAMPS, "m")}, m.archived_at) IS DISTINCT FROM
            (r.final, {names_of(_STAMPS, "i")},
            CASE WHEN r.duplicate THEN coalesce(i.archived_at, m.archived_at) ELSE i.archived_at END)
    FROM incoming_memories AS i, memories AS m
    WHERE i.id = r.id AND m.id = r.target AND r.fate = 'replace'
    """  # noqa: S608 - as above
)


async def plan(tx: Tx, caller: Caller, *, overwrite: bool) -> int:
    """Decide what to do with each memory of the archive, and lock the affected rows. Returns the number of apps that
    were created or changed.

    The user's rules are locked first, as in every transaction that changes them or erases their objects. Therefore only
    one import at a time writes for a user. The categories must exist already (`shared_categories.make`).

    Raises:
        NotFound: the user was erased while their archive was read.
    """
    values = {"user": caller.user_id, "app": caller.app_id, "overwrite": overwrite}
    await rule_cache.hold(tx, [caller.user_id])
    if await tx.scalar(_USER, values) is None:
        raise NotFound("The user was erased a moment ago.", code="user_not_found")
    for statement in _PLAN:
        await tx.execute(text(statement))
    apps = await of_access.restore_apps(tx, caller, overwrite=overwrite)
    await tx.execute(_MATCH_CATEGORIES)
    await tx.execute(_RESOLVE, values)
    for statement in _INDEX_PLAN:
        await tx.execute(text(statement))
    await tx.execute(_LOCK)
    await tx.execute(_SUPERSEDE, values)
    await tx.execute(_ASSIGN)
    await tx.execute(text("CREATE INDEX ON restored_assignments (memory)"))
    await tx.execute(_COMPARE)
    expired = list(await tx.scalars(_EXPIRED_DUPLICATES, values))
    # An expired memory is invisible and must not block its text from being stored again.
    await changes.change_state(tx, caller, Memory.id == func.any(expired), State.ARCHIVED)
    await tx.execute(_EXACT_DUPLICATES, values)
    await tx.execute(_TOUCH)
    return apps
