-- name: sources
-- Adds the sources of the archive that the app does not have yet.
-- An id that another user has is derived anew. A source that the app has goes on.
INSERT INTO sources (id, user_id, app_id, kind, namespace, locator, language, media_type, hash, bytes, title,
    summary, metadata, state, created_at, updated_at, closed_at, deleted_at, infer, captured, expires_at)
SELECT CASE WHEN e.id IS NULL THEN i.id ELSE ${derived_id} END, :user, i.app_target, i.kind,
    i.namespace, i.locator, i.language, i.media_type, i.hash, i.bytes, i.title, i.summary, i.metadata, i.state,
    i.created_at, i.updated_at, i.closed_at, i.deleted_at, i.infer,
    (SELECT count(*) FROM incoming_passages AS p WHERE p.source_id = i.id AND p.position <= i.captured),
    CASE WHEN i.kind = 'document' AND i.state = 'active'
        THEN (SELECT max(p.expires_at) FROM incoming_passages AS p WHERE p.source_id = i.id) END
FROM incoming_sources AS i LEFT JOIN sources AS e ON e.id = i.id
ORDER BY i.app_target, i.namespace, i.kind, i.locator
ON CONFLICT (app_id, namespace, kind, locator) DO NOTHING

-- name: passages
-- Adds the passages that do not exist yet, with their outbox entries, and lists their ids.
-- A message that is there already is left unchanged. Others follow the last one, in their order. A file that is there
-- already is left unchanged as a whole, and so is a session. The index has memories and passages under their ids, so an
-- id is one or the other.
WITH made AS (
    INSERT INTO passages (id, source_id, user_id, app_id, namespace, thread_id, kind, position, external_id,
        speaker, heading, first_line, last_line, content, metadata, state, created_at, labels, symbols,
        expires_at)
    SELECT CASE WHEN e.id IS NULL THEN m.id ELSE ${derived_id} END, s.id, s.user_id, s.app_id,
        s.namespace, CASE WHEN s.kind = 'conversation' THEN s.locator END, m.kind,
        s.length + row_number() OVER (PARTITION BY s.id ORDER BY m.position, m.place), m.external_id, m.role,
        m.heading, m.first_line, m.last_line, m.content, m.metadata, m.state, m.created_at, m.labels, m.symbols,
        m.expires_at
    FROM incoming_passages AS m
    JOIN incoming_sources AS t ON t.id = m.source_id
    JOIN sources AS s ON s.id = t.target AND (s.kind = 'conversation') = (m.kind IN ('turn', 'session'))
    LEFT JOIN LATERAL (
        SELECT p.id FROM passages AS p WHERE p.id = m.id UNION ALL SELECT o.id FROM memories AS o WHERE o.id = m.id
        LIMIT 1
    ) AS e ON true
    WHERE (m.kind = 'turn' OR s.length = 0) AND NOT EXISTS (SELECT FROM passages AS p
        WHERE p.source_id = s.id
        AND (p.id IN (m.id, ${derived_id}) OR p.external_id = m.external_id))
    RETURNING id, source_id, user_id, position, state
), longer AS (
    UPDATE sources AS s SET length = n.length
    FROM (SELECT source_id, max(position) AS length FROM made GROUP BY source_id) AS n WHERE n.source_id = s.id
), entries AS (
    ${entries}
)
SELECT id FROM made ORDER BY id

-- name: vectors
-- Stores the vectors of the archive.
-- Only vectors that models in use made from the text as it is now stored.
INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
SELECT 'passage', p.id, v.model, v.text_hash, v.vector, v.chunking
FROM (SELECT DISTINCT ON (id, model) * FROM incoming_vectors) AS v
JOIN incoming_passages AS m ON m.id = v.id
JOIN passages AS p ON p.id IN (m.id, ${derived_id}) AND p.user_id = :user AND p.hash = v.text_hash
WHERE (v.model, v.dimension) IN (
    SELECT model, dimension FROM index_generations
    UNION SELECT * FROM unnest(CAST(:models AS text[]), CAST(:dimensions AS integer[])))
ON CONFLICT (kind, id, model) DO NOTHING
