-- name: revisions
-- Collects the revisions of the archive that are added.
-- For an existing memory, the archive's texts are appended to its revisions, from the first that differs.
INSERT INTO restored_revisions (memory, revision, old_text, new_text, metadata, app_id, changed_at)
SELECT r.target,
    CASE r.fate WHEN 'add' THEN v.revision
        ELSE r.before_revision + row_number() OVER (PARTITION BY r.id ORDER BY v.revision) END,
    CASE WHEN r.fate = 'replace' AND v.revision = f.revision THEN r.before_text ELSE v.old_text END,
    v.new_text, v.metadata, a.target, v.changed_at
FROM incoming_revisions AS v
JOIN restored AS r ON r.id = v.memory_id AND (r.fate = 'add' OR (r.fate = 'replace' AND r.edited))
LEFT JOIN (
    SELECT v.memory_id, min(v.revision) AS revision
    FROM incoming_revisions AS v JOIN restored AS r ON r.id = v.memory_id AND r.fate = 'replace' AND r.edited
    WHERE NOT EXISTS (
        SELECT FROM memory_revisions AS h
        WHERE h.memory_id = r.target AND h.revision = v.revision AND h.new_text = v.new_text)
    GROUP BY v.memory_id
) AS f ON f.memory_id = v.memory_id
LEFT JOIN incoming_apps AS a ON a.id = v.app_id
WHERE r.fate = 'add' OR v.revision >= f.revision

-- name: present_revisions
-- Collects the revisions that this import makes itself, because no collected one has the memory's text.
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

-- name: writers
-- Sets the apps that wrote the text and the metadata of each memory.
-- The apps of the newest revisions that changed the text and the metadata. Whether the user themself wrote the text is
-- copied.
UPDATE memories AS m SET text_app_id = nullif(t.app_id, m.app_id), metadata_app_id = nullif(d.app_id, m.app_id)
FROM restored AS r
LEFT JOIN LATERAL (
    SELECT v.app_id FROM memory_revisions AS v
    WHERE v.memory_id = r.target AND v.new_text IS DISTINCT FROM v.old_text ORDER BY v.revision DESC LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT v.app_id
    FROM (
        SELECT app_id, revision, metadata IS DISTINCT FROM lag(metadata) OVER (ORDER BY revision) AS changes
        FROM memory_revisions WHERE memory_id = r.target
    ) AS v
    WHERE v.changes ORDER BY v.revision DESC LIMIT 1
) AS d ON true
WHERE m.id = r.target AND (r.fate = 'add' OR (r.fate = 'replace' AND r.touched))
    AND (m.text_app_id, m.metadata_app_id)
        IS DISTINCT FROM (nullif(t.app_id, m.app_id), nullif(d.app_id, m.app_id))

-- name: history
-- Adds the status history of the archive.
INSERT INTO memory_status_history (id, memory_id, changed_by, app_id, old_state, new_state, changed_at, reason)
SELECT CASE WHEN e.id IS NULL THEN h.id ELSE ${derived_id} END,
    r.target, :user, a.target, h.old_state, h.new_state, h.changed_at, h.reason
FROM incoming_status_history AS h
JOIN restored AS r ON r.id = h.memory_id AND r.fate <> 'skip'
LEFT JOIN memory_status_history AS e ON e.id = h.id
LEFT JOIN incoming_apps AS a ON a.id = h.app_id
WHERE e.id IS NULL OR e.memory_id <> r.target
ON CONFLICT DO NOTHING

-- name: present_states
-- Adds the changes of state to the status history that are not in it.
-- The state change that this import makes, which is not in the archive's history.
WITH newest AS (
    SELECT DISTINCT ON (h.memory_id) h.memory_id, h.new_state
    FROM memory_status_history AS h JOIN restored AS r ON r.target = h.memory_id AND r.fate <> 'skip'
    ORDER BY h.memory_id, h.changed_at DESC, h.new_state = r.final DESC
)
INSERT INTO memory_status_history (memory_id, changed_by, app_id, old_state, new_state, changed_at)
SELECT r.target, :user, NULL, n.new_state, r.final, CASE WHEN n.memory_id IS NULL THEN i.created_at ELSE now() END
FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id LEFT JOIN newest AS n ON n.memory_id = r.target
WHERE (r.fate = 'add' OR (r.fate = 'replace' AND r.touched)) AND n.new_state IS DISTINCT FROM r.final

-- name: accesses
-- Adds the access log of the archive.
INSERT INTO memory_access_logs (id, memory_id, app_id, accessed_at, access_type, metadata, imported_at)
SELECT CASE WHEN e.id IS NULL THEN l.id ELSE ${derived_id} END,
    r.target, coalesce(a.target, :app), l.accessed_at, l.access_type, l.metadata, now()
FROM incoming_access_logs AS l
JOIN restored AS r ON r.id = l.memory_id AND r.fate <> 'skip'
LEFT JOIN memory_access_logs AS e ON e.id = l.id
LEFT JOIN incoming_apps AS a ON a.id = l.app_id
WHERE e.id IS NULL OR e.memory_id <> r.target
ON CONFLICT DO NOTHING

-- name: vectors
-- Stores the vectors of the archive.
-- Only vectors that models in use made from the text as it is now stored.
INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
SELECT 'memory', r.target, v.model, v.text_hash, v.vector, v.chunking
FROM (SELECT DISTINCT ON (id, model) * FROM incoming_vectors) AS v
JOIN restored AS r ON r.id = v.id AND r.fate <> 'skip'
JOIN incoming_memories AS i ON i.id = r.id AND i.hash = v.text_hash
WHERE (v.model, v.dimension) IN (
    SELECT model, dimension FROM index_generations
    UNION SELECT * FROM unnest(CAST(:models AS text[]), CAST(:dimensions AS integer[])))
ON CONFLICT (kind, id, model) DO UPDATE
    SET text_hash = excluded.text_hash, vector = excluded.vector, chunking = excluded.chunking, created_at = now()
    WHERE embeddings.text_hash <> excluded.text_hash

-- name: lost
-- Lists the records that were not written because they refer to something missing.
(SELECT 'rule' AS kind, id, problem FROM incoming_access_controls
    WHERE problem IS NOT NULL ORDER BY place LIMIT :most)
UNION ALL (SELECT 'policy', id, problem FROM incoming_archive_policies
    WHERE problem IS NOT NULL ORDER BY place LIMIT :most)
UNION ALL (SELECT 'category', id, problem FROM incoming_categories WHERE problem <> '' ORDER BY place LIMIT :most)
UNION ALL (
    SELECT 'memory', i.id, 'superseded_by: names a memory that is not there'
    FROM incoming_memories AS i JOIN restored AS r ON r.id = i.id
    WHERE i.superseded_by IS NOT NULL AND r.superseded_by IS NULL AND r.fate <> 'skip'
    ORDER BY i.place LIMIT :most)
UNION ALL (
    SELECT DISTINCT 'memory', f.memory, 'category_ids: names a category that is not there'
    FROM (
        SELECT id AS memory, unnest(category_ids) AS category FROM incoming_memories
        UNION ALL SELECT memory_id, category_id FROM incoming_memory_categories
    ) AS f
    JOIN restored AS r ON r.id = f.memory AND r.fate <> 'skip'
    WHERE NOT EXISTS (SELECT FROM incoming_categories AS c WHERE c.id = f.category) LIMIT :most)
