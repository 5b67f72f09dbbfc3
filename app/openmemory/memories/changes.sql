-- name: add
-- Adds memories with their revisions, history, categories, outbox entries and audit event, and lists the new ids.
WITH new AS (
    INSERT INTO memories (user_id, updated_at, ${columns})
    SELECT :user_id, created_at, ${columns}
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(${typed_columns})
    ON CONFLICT (user_id, namespace, app_id, hash) WHERE state = 'active' DO NOTHING
    RETURNING id, user_id, app_id, content, metadata, revision, created_at
), revisions AS (
    INSERT INTO memory_revisions (memory_id, revision, new_text, metadata, changed_by, app_id, changed_at)
    SELECT id, revision, content, metadata, user_id, app_id, created_at FROM new
), history AS (
    INSERT INTO memory_status_history (memory_id, changed_by, app_id, old_state, new_state, changed_at)
    SELECT id, user_id, app_id, NULL, 'active', created_at FROM new
), assigned AS (
    INSERT INTO memory_categories (memory_id, category_id, user_id, app_id)
    SELECT new.id, c.category_id, new.user_id, new.app_id
    FROM jsonb_to_recordset(CAST(:assignments AS jsonb)) AS c(memory_id uuid, category_id uuid)
    JOIN new ON new.id = c.memory_id
), entries AS (${entries}
), audited AS (${audited})
SELECT id FROM new
