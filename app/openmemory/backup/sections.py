"""The queries whose rows form the parts of an archive. PostgreSQL builds the JSON, and Python only forwards it.

Each query binds `user` and the selection: `app`, `from`, `to` (null: any) and `whole` (everything).
"""

from __future__ import annotations

from openmemory.backup.format import (
    ACCESSES,
    ANCHORS,
    CAPTURES,
    LINKS,
    MEMORIES,
    PASSAGES,
    PROJECTS,
    REVISIONS,
    SOURCES,
    STEPS,
)  # fmt: skip

_WHICH = """
    m.user_id = :user AND (CAST(:app AS uuid) IS NULL OR m.app_id = :app)
    AND (CAST(:from AS timestamptz) IS NULL OR m.created_at >= :from)
    AND (CAST(:to AS timestamptz) IS NULL OR m.created_at <= :to)
"""
_CHOSEN = f"SELECT m.id FROM memories AS m WHERE {_WHICH}"
_SAID = """
    p.user_id = :user AND (CAST(:app AS uuid) IS NULL OR p.app_id = :app)
    AND (CAST(:from AS timestamptz) IS NULL OR p.created_at >= :from)
    AND (CAST(:to AS timestamptz) IS NULL OR p.created_at <= :to)
"""
# Without a filter: all of the user's apps, even those that no memory refers to. With a filter: only those that the
# selected memories refer to.
_APPS = f"""
    (:whole OR a.id IN (
        SELECT m.app_id FROM memories AS m WHERE {_WHICH}
        UNION SELECT p.app_id FROM passages AS p WHERE {_SAID}
        UNION SELECT app_id FROM memory_status_history WHERE memory_id IN ({_CHOSEN})
        UNION SELECT app_id FROM memory_revisions WHERE memory_id IN ({_CHOSEN})
        UNION SELECT app_id FROM memory_access_logs WHERE memory_id IN ({_CHOSEN})))
"""
# Data about the user as a whole is exported only with a complete export.
_POLICIES = "p.user_id = :user AND :whole"
_DESCRIPTIONS = "d.user_id = :user AND :whole"
_CAPTURES = "k.user_id = :user AND :whole"
_PROJECTS = "j.user_id = :user AND :whole"

USER = """
    SELECT CAST(json_build_object('id', id, 'user_id', user_id, 'name', name, 'email', email, 'metadata', metadata,
        'created_at', created_at, 'updated_at', updated_at) AS text)
    FROM users WHERE id = :user
    """


SECTIONS: dict[str, str] = {
    "apps": f"""
        SELECT CAST(json_build_object('id', a.id, 'owner_id', a.owner_id, 'name', a.name,
            'description', a.description, 'metadata', a.metadata, 'is_active', a.is_active,
            'created_at', a.created_at, 'updated_at', a.updated_at) AS text)
        FROM apps AS a WHERE a.owner_id = :user AND {_APPS} ORDER BY a.created_at, a.id
    """,
    "categories": f"""
        SELECT CAST(json_build_object('id', c.id, 'name', c.name, 'description', c.description,
            'created_at', c.created_at, 'updated_at', c.updated_at,
            'own', CASE WHEN d.category_id IS NOT NULL THEN json_build_object('description', d.description,
                'created_at', d.created_at, 'updated_at', d.updated_at) END) AS text)
        FROM categories AS c
        LEFT JOIN category_descriptions AS d ON d.category_id = c.id AND {_DESCRIPTIONS}
        WHERE d.category_id IS NOT NULL
        OR c.id IN (SELECT category_id FROM memory_categories WHERE memory_id IN ({_CHOSEN}))
        OR c.id IN (SELECT object_id FROM access_controls WHERE user_id = :user AND object_type = 'category')
        OR c.id IN (SELECT criteria_id FROM archive_policies AS p WHERE {_POLICIES} AND criteria_type = 'category')
        ORDER BY c.name
    """,
    "memories": f"""
        SELECT CAST(json_build_object('id', m.id, 'user_id', m.user_id, 'app_id', m.app_id, 'content', m.content,
            'metadata', m.metadata, 'state', m.state, 'created_at', m.created_at, 'updated_at', m.updated_at,
            'archived_at', m.archived_at, 'deleted_at', m.deleted_at,
            'category_ids', ARRAY(SELECT c.category_id FROM memory_categories AS c WHERE c.memory_id = m.id ORDER BY 1),
            'namespace', m.namespace, 'thread_id', m.thread_id, 'kind', m.kind, 'key', m.key,
            'importance', m.importance, 'expires_at', m.expires_at, 'valid_from', m.valid_from,
            'valid_until', m.valid_until, 'superseded_by', m.superseded_by, 'revision', m.revision,
            'text_by_user', m.text_by_user) AS text), m.id
        FROM memories AS m WHERE {_WHICH} ORDER BY m.created_at, m.id
    """,
    "memory_categories": f"""
        SELECT CAST(json_build_object('memory_id', c.memory_id, 'category_id', c.category_id,
            'automatic', c.automatic) AS text)
        FROM memory_categories AS c WHERE c.memory_id IN ({_CHOSEN}) ORDER BY c.memory_id, c.category_id
    """,
    "status_history": f"""
        SELECT CAST(json_build_object('id', h.id, 'memory_id', h.memory_id, 'changed_by', h.changed_by,
            'old_state', h.old_state, 'new_state', h.new_state, 'changed_at', h.changed_at, 'app_id', h.app_id,
            'reason', h.reason) AS text)
        FROM memory_status_history AS h WHERE h.memory_id IN ({_CHOSEN}) ORDER BY h.memory_id, h.changed_at, h.id
    """,
    "access_controls": f"""
        SELECT CAST(json_build_object('id', r.id, 'subject_type', r.subject_type, 'subject_id', r.subject_id,
            'object_type', r.object_type, 'object_id', r.object_id, 'effect', r.effect, 'created_at', r.created_at,
            'object_name', r.object_name) AS text)
        FROM access_controls AS r
        WHERE r.user_id = :user AND (r.object_type <> 'memory' OR r.object_id IN ({_CHOSEN}))
        AND (r.subject_id IS NULL OR EXISTS (SELECT FROM apps AS a WHERE a.id = r.subject_id AND {_APPS}))
        AND (r.object_type <> 'app' OR EXISTS (SELECT FROM apps AS a WHERE a.id = r.object_id AND {_APPS}))
        ORDER BY r.created_at, r.id
    """,
    "archive_policies": f"""
        SELECT CAST(json_build_object('id', p.id, 'criteria_type', p.criteria_type, 'criteria_id', p.criteria_id,
            'action', p.action, 'days_to_archive', p.days_to_archive, 'created_at', p.created_at,
            'criteria_name', coalesce(p.criteria_name, a.name, c.name, u.user_id)) AS text)
        FROM archive_policies AS p
        LEFT JOIN apps AS a ON p.criteria_type = 'app' AND a.id = p.criteria_id
        LEFT JOIN categories AS c ON p.criteria_type = 'category' AND c.id = p.criteria_id
        LEFT JOIN users AS u ON p.criteria_type = 'user' AND u.id = p.criteria_id
        WHERE {_POLICIES} AND (p.criteria_type <> 'app' OR a.id IS NOT NULL)
            AND (p.criteria_type <> 'category' OR c.id IS NOT NULL)
        ORDER BY p.created_at, p.id
    """,
}  # fmt: skip
"""The lists of `memories.json`, in order. Each row is one JSON text; rows of memories also have the id."""

LINES: dict[str, str] = {
    MEMORIES: f"""
        SELECT CAST(json_build_object('id', m.id, 'content', m.content, 'metadata', m.metadata,
            'created_at', m.created_at, 'updated_at', m.updated_at, 'state', m.state, 'app', a.name,
            'categories', ARRAY(
                SELECT c.name FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
                WHERE f.memory_id = m.id ORDER BY 1)) AS text)
        FROM memories AS m JOIN apps AS a ON a.id = m.app_id WHERE {_WHICH} ORDER BY m.created_at, m.id
    """,
    REVISIONS: f"""
        SELECT CAST(json_build_object('memory_id', r.memory_id, 'revision', r.revision, 'old_text', r.old_text,
            'new_text', r.new_text, 'metadata', r.metadata, 'app_id', r.app_id, 'changed_at', r.changed_at) AS text)
        FROM memory_revisions AS r WHERE r.memory_id IN ({_CHOSEN}) ORDER BY r.memory_id, r.revision
    """,
    ACCESSES: f"""
        SELECT CAST(json_build_object('id', l.id, 'memory_id', l.memory_id, 'app_id', l.app_id,
            'accessed_at', l.accessed_at, 'access_type', l.access_type, 'metadata', l.metadata) AS text)
        FROM memory_access_logs AS l WHERE l.memory_id IN ({_CHOSEN}) AND l.app_id IS NOT NULL
        ORDER BY l.accessed_at, l.id
    """,
    LINKS: f"""
        SELECT CAST(json_build_object('from_id', l.from_id, 'rel', l.rel, 'to_id', l.to_id, 'app_id', l.app_id,
            'created_at', l.created_at) AS text)
        FROM memory_links AS l WHERE l.from_id IN ({_CHOSEN}) AND l.to_id IN ({_CHOSEN})
        ORDER BY l.from_id, l.rel, l.to_id
    """,
    PROJECTS: f"""
        SELECT CAST(json_build_object('namespace', j.namespace, 'name', j.name, 'root', j.root, 'repo', j.repo,
            'head', j.head, 'branch', j.branch, 'metadata', j.metadata, 'app_id', j.app_id,
            'created_at', j.created_at, 'updated_at', j.updated_at) AS text)
        FROM projects AS j WHERE {_PROJECTS} ORDER BY j.namespace, j.created_at, j.id
    """,
    ANCHORS: f"""
        SELECT CAST(json_build_object('namespace', j.namespace, 'head', j.head, 'commit', j.commit,
            'reachable', j.reachable, 'checked_at', j.checked_at) AS text)
        FROM anchors AS j WHERE {_PROJECTS} ORDER BY j.namespace, j.head, j.commit
    """,
    # Captures that are being processed are exported as pending, because no worker holds them after an import.
    CAPTURES: f"""
        SELECT CAST(json_build_object('id', k.id, 'app_id', k.app_id, 'created_at', k.created_at,
            'updated_at', k.updated_at, 'finished_at', k.finished_at,
            'status', CASE k.status WHEN 'working' THEN 'pending' ELSE k.status END,
            'input', k.input, 'options', k.options, 'namespaces', k.principal -> 'namespaces',
            'scopes', k.principal -> 'scopes', 'attempts', k.attempts,
            'bad_answers', k.bad_answers, 'error', k.error, 'model', k.model, 'calls', k.calls,
            'prompt_tokens', k.prompt_tokens, 'completion_tokens', k.completion_tokens, 'seconds', k.seconds) AS text)
        FROM captures AS k WHERE {_CAPTURES} ORDER BY k.created_at, k.id
    """,
    STEPS: f"""
        SELECT CAST(json_build_object('capture_id', k.id, 'number', s.number, s.kind, s.step) AS text)
        FROM captures AS k CROSS JOIN LATERAL (
            SELECT 'operation' AS kind, o.number, o.step
            FROM jsonb_array_elements(k.operations) WITH ORDINALITY AS o(step, number)
            UNION ALL SELECT 'refused', o.number, o.step
            FROM jsonb_array_elements(k.refused) WITH ORDINALITY AS o(step, number)
        ) AS s
        WHERE {_CAPTURES} ORDER BY k.created_at, k.id, s.kind, s.number
    """,
    SOURCES: f"""
        SELECT CAST(json_build_object('id', s.id, 'app_id', s.app_id, 'kind', s.kind, 'namespace', s.namespace,
            'locator', s.locator, 'language', s.language, 'media_type', s.media_type, 'hash', s.hash, 'bytes', s.bytes,
            'title', s.title, 'summary', s.summary, 'metadata', s.metadata, 'state', s.state,
            'created_at', s.created_at, 'updated_at', s.updated_at, 'closed_at', s.closed_at,
            'deleted_at', s.deleted_at, 'infer', s.infer, 'captured', s.captured) AS text)
        FROM sources AS s
        WHERE s.user_id = :user AND s.id IN (SELECT p.source_id FROM passages AS p WHERE {_SAID})
        ORDER BY s.created_at, s.id
    """,
    PASSAGES: f"""
        SELECT CAST(json_build_object('id', p.id, 'source_id', p.source_id, 'kind', p.kind,
            'position', p.position, 'external_id', p.external_id, 'role', p.speaker, 'heading', p.heading,
            'first_line', p.first_line, 'last_line', p.last_line, 'content', p.content, 'metadata', p.metadata,
            'state', p.state, 'created_at', p.created_at, 'expires_at', p.expires_at) AS text)
        FROM passages AS p WHERE {_SAID} ORDER BY p.created_at, p.id
    """,
}  # fmt: skip
"""The JSON Lines members, in order."""

VECTORS = f"""
    SELECT m.id, e.model, e.text_hash, e.vector, e.chunking
    FROM memories AS m JOIN embeddings AS e ON e.kind = 'memory' AND e.id = m.id AND e.text_hash = m.hash
    WHERE {_WHICH}
    UNION ALL SELECT p.id, e.model, e.text_hash, e.vector, e.chunking
    FROM passages AS p JOIN embeddings AS e ON e.kind = 'passage' AND e.id = p.id AND e.text_hash = p.hash
    WHERE {_SAID}
    """
