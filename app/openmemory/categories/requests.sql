-- name: queue_page
-- Queues a page of a user's memories for category assignment, and returns the end of the page.
WITH page AS (
    SELECT m.id, m.created_at, m.hash FROM memories AS m
    WHERE m.user_id = :user AND (m.created_at, m.id) > (CAST(:made AS timestamptz), CAST(:id AS uuid))
    ORDER BY m.created_at, m.id LIMIT :limit FOR KEY SHARE
), queued AS (
    INSERT INTO pending_categorizations (memory_id) SELECT m.id FROM page AS m WHERE ${categorizable} ORDER BY 1
    ON CONFLICT (memory_id) DO UPDATE SET due_at = now(), attempts = 0, last_error = NULL
        WHERE pending_categorizations.due_at < 'infinity'
)
SELECT created_at, id FROM page ORDER BY created_at DESC, id DESC LIMIT 1
