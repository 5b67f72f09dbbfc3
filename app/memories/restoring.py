"""Writing what came in from an archive: rows, revisions, status history, filings, index marks, vectors and access log
together, or none. Each step is one statement whatever the number of memories.

`restored` is the plan: for each memory of the archive which row it becomes (`target`), and whether that one is added,
replaced or left as it is (`fate`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, text

from app.access import incoming as of_access
from app.access import journal, rulebook
from app.access.caller import Caller
from app.access.incoming import DERIVED
from app.access.journal import Event as AuditEvent
from app.audit import trail
from app.audit.trail import Access
from app.database import Tx
from app.index import marks
from app.memories import changes
from app.memories.models import Memory, State

_PLAN = (
    """
    CREATE TEMPORARY TABLE restored (
        id uuid, place integer, target uuid, renamed boolean, fate text, app_id uuid, superseded_by uuid,
        before memory_state, before_revision integer, before_text text, final memory_state, twin boolean DEFAULT false,
        edited boolean DEFAULT false, touched boolean DEFAULT false, revision integer) ON COMMIT DROP
    """,
    "CREATE TEMPORARY TABLE restored_filings (memory uuid, category uuid) ON COMMIT DROP",
    """
    CREATE TEMPORARY TABLE restored_revisions (
        memory uuid, revision integer, old_text text, new_text text, metadata jsonb, app_id uuid,
        changed_at timestamptz) ON COMMIT DROP
    """,
    "ALTER TABLE incoming_categories ADD target uuid",
)

_MATCH_CATEGORIES = text(
    "UPDATE incoming_categories AS i SET target = c.id FROM categories AS c WHERE i.target IS NULL AND c.name = i.name"
)
_ADD_CATEGORIES = """
    INSERT INTO categories (id, name, description, created_at, updated_at)
    SELECT {id}, i.name, i.description, i.created_at, i.updated_at
    FROM (SELECT DISTINCT ON (name) * FROM incoming_categories WHERE target IS NULL ORDER BY name, place) AS i
    ON CONFLICT DO NOTHING
"""
_ADD_CATEGORIES_AS_THEY_WERE = text(_ADD_CATEGORIES.format(id="i.id"))
_ADD_CATEGORIES_ANEW = text(_ADD_CATEGORIES.format(id="gen_random_uuid()"))

_RESOLVE = text(
    f"""
    INSERT INTO restored (id, place, target, renamed, fate, app_id, final)
    SELECT i.id, i.place, now_called.id, now_called.id <> i.id,
        CASE WHEN NOT EXISTS (SELECT FROM memories AS m WHERE m.id = now_called.id) THEN 'add'
            WHEN :overwrite THEN 'replace' ELSE 'skip' END,
        coalesce(a.target, :app), i.state
    FROM incoming_memories AS i
    LEFT JOIN memories AS e ON e.id = i.id AND e.user_id <> :user
    LEFT JOIN LATERAL (SELECT {DERIVED.format(id="i.id")} AS id WHERE e.id IS NOT NULL) AS other ON true
    LEFT JOIN memories AS d ON d.id = other.id AND d.user_id <> :user
    LEFT JOIN incoming_apps AS a ON a.id = i.app
    CROSS JOIN LATERAL (
        SELECT CASE WHEN e.id IS NULL THEN i.id WHEN d.id IS NULL THEN other.id ELSE gen_random_uuid() END AS id
    ) AS now_called
    """  # noqa: S608 - only constants are put in
)
_INDEX_PLAN = (
    "CREATE UNIQUE INDEX ON restored (target)", "CREATE INDEX ON restored (id)", "ANALYZE restored",
)  # fmt: skip
# In order of id, as all who lock several memories do.
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
_FILE = text(
    """
    INSERT INTO restored_filings (memory, category)
    SELECT DISTINCT r.target, c.target
    FROM (
        SELECT id AS memory, unnest(categories) AS category FROM incoming_memories
        UNION ALL SELECT memory, category FROM incoming_filings
    ) AS f
    JOIN restored AS r ON r.id = f.memory AND r.fate <> 'skip'
    JOIN incoming_categories AS c ON c.id = f.category
    """
)
_CONTENT = (
    "content", "metadata", "namespace", "thread_id", "kind", "key", "importance", "expires_at", "valid_from",
    "valid_until",
)  # fmt: skip
_STAMPS = ("created_at", "updated_at", "archived_at", "deleted_at")
_AS_THEY_WERE = (*_CONTENT, "created_at", "updated_at", "deleted_at", "hash", "labels")
_COMPARE = text(
    f"""
    UPDATE restored AS r SET before = m.state, before_revision = m.revision, before_text = m.content,
        edited = ({", ".join(f"m.{name}" for name in _CONTENT)}, m.app_id, m.superseded_by)
                IS DISTINCT FROM ({", ".join(f"i.{name}" for name in _CONTENT)}, r.app_id, r.superseded_by)
            OR ARRAY(SELECT category_id FROM memory_categories AS c WHERE c.memory_id = m.id ORDER BY 1)
                <> ARRAY(SELECT category FROM restored_filings AS f WHERE f.memory = m.id ORDER BY 1)
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
_EXPIRED_TWINS = text(f"SELECT DISTINCT m.id {_ACTIVE_ELSEWHERE} AND m.expires_at <= now()")
_TWINS = text(
    f"""
    UPDATE restored AS r SET final = 'archived', twin = true
    FROM (
        SELECT r.id FROM (
            SELECT r.id, row_number() OVER (
                PARTITION BY i.namespace, r.app_id, i.hash
                ORDER BY r.fate = 'replace' AND NOT r.edited AND r.before = 'active' DESC, i.created_at, r.place
            ) AS turn
            FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
            WHERE r.fate <> 'skip' AND i.state = 'active'
        ) AS r WHERE r.turn > 1
        UNION SELECT r.id {_ACTIVE_ELSEWHERE}
    ) AS t WHERE t.id = r.id
    """  # noqa: S608 - as above
)
_TOUCH = text(
    f"""
    UPDATE restored AS r SET touched = r.edited OR (m.state, {", ".join(f"m.{name}" for name in _STAMPS)})
        IS DISTINCT FROM (r.final, {", ".join(f"i.{name}" for name in _STAMPS)})
    FROM incoming_memories AS i, memories AS m
    WHERE i.id = r.id AND m.id = r.target AND r.fate = 'replace'
    """  # noqa: S608 - as above
)

# Of a memory that is there already the archive's later texts follow those that it has, from the first that differs.
_REVISIONS = text(
    """
    INSERT INTO restored_revisions (memory, revision, old_text, new_text, metadata, app_id, changed_at)
    SELECT r.target,
        CASE r.fate WHEN 'add' THEN v.revision
            ELSE r.before_revision + row_number() OVER (PARTITION BY r.id ORDER BY v.revision) END,
        CASE WHEN r.fate = 'replace' AND v.revision = f.revision THEN r.before_text ELSE v.old_text END,
        v.new_text, v.metadata, a.target, v.changed_at
    FROM incoming_revisions AS v
    JOIN restored AS r ON r.id = v.memory AND (r.fate = 'add' OR (r.fate = 'replace' AND r.edited))
    LEFT JOIN (
        SELECT v.memory, min(v.revision) AS revision
        FROM incoming_revisions AS v JOIN restored AS r ON r.id = v.memory AND r.fate = 'replace' AND r.edited
        WHERE NOT EXISTS (
            SELECT FROM memory_revisions AS h
            WHERE h.memory_id = r.target AND h.revision = v.revision AND h.new_text = v.new_text)
        GROUP BY v.memory
    ) AS f ON f.memory = v.memory
    LEFT JOIN incoming_apps AS a ON a.id = v.app
    WHERE r.fate = 'add' OR v.revision >= f.revision
    """
)
_PRESENT_REVISIONS = text(
    """
    WITH newest AS (
        SELECT DISTINCT ON (memory) memory, revision, new_text FROM restored_revisions ORDER BY memory, revision DESC
    )
    INSERT INTO restored_revisions (memory, revision, old_text, new_text, metadata, app_id, changed_at)
    SELECT r.target,
        CASE r.fate WHEN 'add' THEN greatest(n.revision + 1, i.revision)
            ELSE coalesce(n.revision, r.before_revision) + 1 END,
        coalesce(n.new_text, r.before_text), i.content, i.metadata, CASE r.fate WHEN 'add' THEN r.app_id ELSE :app END,
        CASE r.fate WHEN 'add' THEN i.updated_at ELSE now() END
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id LEFT JOIN newest AS n ON n.memory = r.target
    WHERE (r.fate = 'add' OR (r.fate = 'replace' AND r.edited))
        AND (n.memory IS NULL OR n.new_text <> i.content OR (r.fate = 'add' AND n.revision < i.revision))
    """
)
_NUMBER = text(
    """
    UPDATE restored AS r SET revision = n.revision
    FROM (SELECT memory, max(revision) AS revision FROM restored_revisions GROUP BY memory) AS n
    WHERE n.memory = r.target
    """
)
_KEEP_REVISIONS = text(
    """
    INSERT INTO memory_revisions (memory_id, revision, old_text, new_text, metadata, changed_by, app_id, changed_at)
    SELECT memory, revision, old_text, new_text, metadata, :user, app_id, changed_at FROM restored_revisions
    """
)

# Texts may change places: none of them is active while they do.
_MAKE_ROOM = text(
    """
    UPDATE memories AS m SET state = 'archived'
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE m.id = r.target AND r.fate = 'replace' AND m.state = 'active'
        AND (r.final, m.namespace, m.app_id, m.hash) IS DISTINCT FROM ('active', i.namespace, r.app_id, i.hash)
    """
)
_REPLACE = text(
    f"""
    UPDATE memories AS m SET {", ".join(f"{name} = i.{name}" for name in _AS_THEY_WERE)},
        archived_at = CASE WHEN r.twin THEN coalesce(i.archived_at, now()) ELSE i.archived_at END,
        app_id = r.app_id, superseded_by = r.superseded_by, state = r.final, revision = coalesce(r.revision, m.revision)
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE m.id = r.target AND r.fate = 'replace' AND r.touched
    """  # noqa: S608 - as above
)
# In the order in which others add the same texts: two that wait for each other would wait in vain.
_ADD = text(
    f"""
    INSERT INTO memories (id, user_id, app_id, {", ".join(_CONTENT)}, hash, labels, state, created_at, updated_at,
        archived_at, deleted_at, superseded_by, revision)
    SELECT r.target, :user, r.app_id, {", ".join(f"i.{name}" for name in _CONTENT)}, i.hash, i.labels, r.final,
        i.created_at, i.updated_at, CASE WHEN r.twin THEN coalesce(i.archived_at, now()) ELSE i.archived_at END,
        i.deleted_at, r.superseded_by, r.revision
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE r.fate = 'add'
    ORDER BY i.namespace, CAST(r.app_id AS text), i.hash
    """  # noqa: S608 - as above
)

_UNFILE = text(
    """
    DELETE FROM memory_categories AS c USING restored AS r
    WHERE c.memory_id = r.target AND r.fate = 'replace' AND r.edited
        AND NOT EXISTS (SELECT FROM restored_filings AS f WHERE f.memory = c.memory_id AND f.category = c.category_id)
    """
)
_KEEP_FILINGS = text(
    """
    INSERT INTO memory_categories (memory_id, category_id) SELECT memory, category FROM restored_filings
    ORDER BY memory, category ON CONFLICT DO NOTHING
    """
)
_HISTORY = text(
    f"""
    INSERT INTO memory_status_history (id, memory_id, changed_by, app_id, old_state, new_state, changed_at)
    SELECT CASE WHEN e.id IS NULL THEN h.id ELSE {DERIVED.format(id="h.id")} END,
        r.target, :user, a.target, h.old_state, h.new_state, h.changed_at
    FROM incoming_history AS h
    JOIN restored AS r ON r.id = h.memory AND r.fate <> 'skip'
    LEFT JOIN memory_status_history AS e ON e.id = h.id
    LEFT JOIN incoming_apps AS a ON a.id = h.app
    WHERE e.id IS NULL OR e.memory_id <> r.target
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - as above
)
# What the archive's history does not tell: the change that this import makes.
_PRESENT_STATES = text(
    """
    WITH newest AS (
        SELECT DISTINCT ON (h.memory_id) h.memory_id, h.new_state
        FROM memory_status_history AS h JOIN restored AS r ON r.target = h.memory_id AND r.fate <> 'skip'
        ORDER BY h.memory_id, h.changed_at DESC, h.new_state = r.final DESC
    )
    INSERT INTO memory_status_history (memory_id, changed_by, app_id, old_state, new_state, changed_at)
    SELECT r.target, :user, NULL, n.new_state, r.final, CASE WHEN n.memory_id IS NULL THEN i.created_at ELSE now() END
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id LEFT JOIN newest AS n ON n.memory_id = r.target
    WHERE (r.fate = 'add' OR (r.fate = 'replace' AND r.touched)) AND n.new_state IS DISTINCT FROM r.final
    """
)
_ACCESSES = text(
    f"""
    INSERT INTO memory_access_logs (id, memory_id, app_id, accessed_at, access_type, metadata)
    SELECT CASE WHEN e.id IS NULL THEN l.id ELSE {DERIVED.format(id="l.id")} END,
        r.target, coalesce(a.target, :app), l.accessed_at, l.access_type, l.metadata
    FROM incoming_accesses AS l
    JOIN restored AS r ON r.id = l.memory AND r.fate <> 'skip'
    LEFT JOIN memory_access_logs AS e ON e.id = l.id
    LEFT JOIN incoming_apps AS a ON a.id = l.app
    WHERE e.id IS NULL OR e.memory_id <> r.target
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - as above
)
# Only those that our models made of the text as it is now stored.
_VECTORS = text(
    """
    INSERT INTO embeddings (kind, id, model, text_hash, vector)
    SELECT 'memory', r.target, v.model, v.text_hash, v.vector
    FROM (SELECT DISTINCT ON (id, model) * FROM incoming_vectors) AS v
    JOIN restored AS r ON r.id = v.id AND r.fate <> 'skip'
    JOIN incoming_memories AS i ON i.id = r.id AND i.hash = v.text_hash
    WHERE (v.model, length(v.vector) / 4) IN (
        SELECT model, dimension FROM index_generations
        UNION SELECT * FROM unnest(CAST(:models AS text[]), CAST(:dimensions AS integer[])))
    ON CONFLICT (kind, id, model) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, created_at = now()
        WHERE embeddings.text_hash <> excluded.text_hash
    """
)
_MARK = text(
    marks.RAISE.format(
        kind="'memory'",
        id="r.target",
        source="""FROM restored AS r
            WHERE (r.fate = 'add' AND r.final = 'active') OR (r.fate = 'replace' AND r.touched) ORDER BY 2""",
    )
)
_COUNT = text(
    """
    SELECT count(*) FILTER (WHERE fate = 'add') AS added,
        count(*) FILTER (WHERE fate = 'replace' AND touched) AS replaced,
        count(*) FILTER (WHERE fate = 'replace' AND NOT touched) AS unchanged,
        count(*) FILTER (WHERE fate = 'skip') AS skipped,
        count(*) FILTER (WHERE fate = 'add' AND renamed) AS renamed,
        count(*) FILTER (WHERE twin) AS archived_twins
    FROM restored
    """
)
_WRITTEN = "SELECT target AS id FROM restored WHERE fate = 'add' OR (fate = 'replace' AND touched)"
_LOST = text(
    """
    (SELECT 'rule' AS kind, id, problem FROM incoming_rules WHERE problem IS NOT NULL ORDER BY place LIMIT :most)
    UNION ALL (
        SELECT 'memory', i.id, 'superseded_by: names a memory that is not there'
        FROM incoming_memories AS i JOIN restored AS r ON r.id = i.id
        WHERE i.superseded_by IS NOT NULL AND r.superseded_by IS NULL AND r.fate <> 'skip'
        ORDER BY i.place LIMIT :most)
    UNION ALL (
        SELECT DISTINCT 'memory', f.memory, 'category_ids: names a category that is not there'
        FROM (
            SELECT id AS memory, unnest(categories) AS category FROM incoming_memories
            UNION ALL SELECT memory, category FROM incoming_filings
        ) AS f
        JOIN restored AS r ON r.id = f.memory AND r.fate <> 'skip'
        WHERE NOT EXISTS (SELECT FROM incoming_categories AS c WHERE c.id = f.category) LIMIT :most)
    """
)


@dataclass(slots=True)
class Restored:
    """How much was written, by kind; of memories also what became of them."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    skipped: int = 0
    renamed: int = 0
    archived_twins: int = 0
    apps: int = 0
    categories: int = 0
    history: int = 0
    revisions: int = 0
    access_logs: int = 0
    rules: int = 0
    vectors: int = 0


async def plan(tx: Tx, caller: Caller, *, overwrite: bool) -> Restored:
    """Decide what becomes of each memory of the archive, and hold the rows that it concerns.

    The user's rules are held first, as by all who change them or erase what they are about: so one import at a time
    writes for a user.
    """
    done = Restored()
    values = {"user": caller.user_id, "app": caller.app_id, "overwrite": overwrite}
    await rulebook.hold(tx, [caller.user_id])
    for statement in _PLAN:
        await tx.execute(text(statement))
    done.apps = await of_access.take_apps(tx, caller, overwrite=overwrite)
    await tx.execute(_MATCH_CATEGORIES)
    for add in (_ADD_CATEGORIES_AS_THEY_WERE, _ADD_CATEGORIES_ANEW):
        done.categories += (await tx.execute(add)).rowcount
        await tx.execute(_MATCH_CATEGORIES)
    await tx.execute(_RESOLVE, values)
    for statement in _INDEX_PLAN:
        await tx.execute(text(statement))
    await tx.execute(_LOCK)
    await tx.execute(_SUPERSEDE, values)
    await tx.execute(_FILE)
    await tx.execute(text("CREATE INDEX ON restored_filings (memory)"))
    await tx.execute(_COMPARE)
    expired = list(await tx.scalars(_EXPIRED_TWINS, values))
    # What has expired nobody sees: it must not keep its text from being there again.
    await changes.change_state(tx, caller, Memory.id == func.any(expired), State.ARCHIVED)
    await tx.execute(_TWINS, values)
    await tx.execute(_TOUCH)
    return done


async def write(tx: Tx, caller: Caller, done: Restored, *, mode: str, models: Sequence[tuple[str, int]]) -> Restored:
    """Write what was planned. `models`: those in use, with their dimensions, whose vectors are taken over.

    Raises:
        IntegrityError: somebody else wrote one of the ids or texts a moment ago; planned anew, it will do.
    """
    values = {"user": caller.user_id, "app": caller.app_id}
    await tx.execute(_REVISIONS)
    await tx.execute(_PRESENT_REVISIONS, values)
    await tx.execute(_NUMBER)
    await tx.execute(_MAKE_ROOM)
    await tx.execute(_REPLACE)
    await tx.execute(_ADD, values)
    await tx.execute(_UNFILE)
    await tx.execute(_KEEP_FILINGS)
    done.revisions = (await tx.execute(_KEEP_REVISIONS, values)).rowcount
    done.history = (await tx.execute(_HISTORY, values)).rowcount
    await tx.execute(_PRESENT_STATES, values)
    done.access_logs = (await tx.execute(_ACCESSES, values)).rowcount
    in_use = {"models": [name for name, _ in models], "dimensions": [size for _, size in models]}
    done.vectors = (await tx.execute(_VECTORS, in_use)).rowcount
    await tx.execute(_MARK)
    done.rules = await of_access.take_rules(tx, caller)
    counts = (await tx.execute(_COUNT)).one()._mapping
    for name, count in counts.items():
        setattr(done, name, count)
    detail = {"mode": mode, **dict(counts)}
    await trail.log_chosen(tx, caller, Access.UPDATE, _REPLACED, {"operation": "import"})
    await journal.record_chosen(tx, caller, AuditEvent.MEMORY_IMPORT, _WRITTEN, detail=detail)
    return done


_REPLACED = "SELECT target AS id FROM restored WHERE fate = 'replace' AND touched"


async def lost(tx: Tx, most: int) -> list[tuple[str, str, str]]:
    """What refers to something that is not there, and so was not made: kind, id in the archive, and why."""
    return [(row.kind, str(row.id), row.problem) for row in await tx.execute(_LOST, {"most": most})]
