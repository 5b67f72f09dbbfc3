-- name: claimed
-- Gives the capture of the row `due` to a worker, and returns what reading it needs: the end of each claim.
UPDATE captures AS c
SET status = 'working', holder = :holder, attempts = c.attempts + 1, updated_at = now(), behind = false,
    due_at = now() + make_interval(secs => :lease)
FROM due, users AS u, apps AS a
WHERE c.id = due.id AND u.id = c.user_id AND a.id = c.app_id
RETURNING c.id, c.user_id, u.user_id AS user_name,
    u.metadata ->> 'timezone' AS timezone, c.app_id, a.name AS app_name, c.namespace, c.input, c.options,
    c.principal, c.operations, c.attempts, c.bad_answers, c.created_at, due.updated_at AS tried_at

-- name: claim
-- Claims the first of the captures looked at that waits behind no other, and marks those that do.
-- A capture is not marked while the earlier one is locked. The transaction with the lock may be ending the earlier one,
-- and its trigger may have run already. Then nothing would clear the mark.
WITH first AS MATERIALIZED (
    SELECT c.id, c.user_id, c.namespace, c.due_at, c.created_at, c.updated_at, (
        SELECT o.id FROM captures AS o
        WHERE o.status IN ('pending', 'working') AND o.user_id = c.user_id AND o.namespace = c.namespace
            AND (o.created_at, o.id) < (c.created_at, c.id)
        ORDER BY o.user_id, o.namespace, o.created_at, o.id LIMIT 1) AS earlier
    FROM captures AS c WHERE c.id = ANY (:ids)
), waiting AS (
    SELECT first.id FROM first, captures AS o
    WHERE o.id = first.earlier AND o.status IN ('pending', 'working') AND o.user_id = first.user_id
        AND o.namespace = first.namespace
    FOR SHARE OF o SKIP LOCKED
), marked AS (
    UPDATE captures AS c SET behind = true FROM waiting WHERE c.id = waiting.id
), due AS (
    SELECT id, updated_at FROM first WHERE earlier IS NULL ORDER BY due_at, created_at LIMIT 1
)
${claimed}

-- name: claim_failed
-- Claims the failed capture that is due first and waits behind no other.
-- A CTE that locks is read once. Read again for each capture, it would claim another one each time.
WITH due AS MATERIALIZED (
    SELECT c.id, c.updated_at FROM captures AS c
    WHERE c.status = 'failed' AND c.due_at <= now() AND ${busy} IS NULL
    ORDER BY c.due_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED
)
${claimed}
