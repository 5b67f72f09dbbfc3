-- name: revert
-- Makes the memories of an action what they were before, unless they were changed since, and lists them.
WITH entries AS (
    SELECT u.*, m.state AS state_now, m.revision > u.revision AS rewritten
    FROM memory_undo AS u
    JOIN memories AS m ON m.id = u.memory_id AND m.updated_at = u.changed_at
    WHERE u.action = :action AND m.user_id = :user_id AND (:namespaces IS NULL OR m.namespace = ANY(:namespaces))
    ORDER BY m.id FOR NO KEY UPDATE OF m
), changed AS (
    UPDATE memories AS m
    SET state = e.state, archived_at = e.archived_at, deleted_at = e.deleted_at, expires_at = e.expires_at,
        valid_until = e.valid_until, updated_at = now(),
        superseded_by = (SELECT s.id FROM memories AS s WHERE s.id = e.superseded_by)
    FROM entries AS e WHERE e.memory_id = m.id
    RETURNING m.id, e.state_now, m.state, e.rewritten
), history AS (
    INSERT INTO memory_status_history (memory_id, changed_by, old_state, new_state)
    SELECT id, :user_id, state_now, state FROM changed WHERE state_now <> state
), unfiled AS (
    DELETE FROM memory_categories AS c USING entries AS e
    WHERE c.memory_id = e.memory_id AND c.category_id = e.category_id
)
SELECT id, state_now, state, rewritten FROM changed ORDER BY id
