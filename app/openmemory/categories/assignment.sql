-- name: waiting
-- Counts the memories of a user that wait for categories, and those of them that failed before.
-- Starts from the few waiting memories, not from all memories of the user. If a new assignment of all memories was
-- requested, these are counted too.
SELECT count(*) + (
        SELECT count(*) FROM memories AS m
        WHERE EXISTS (SELECT FROM reclassification_requests WHERE user_id = :user) AND m.user_id = :user
            AND NOT EXISTS (SELECT FROM pending_categorizations AS k WHERE k.memory_id = m.id)
            AND ${categorizable}
    ) AS waiting,
    count(*) FILTER (WHERE k.attempts > 0) AS failed
FROM (SELECT memory_id, attempts FROM pending_categorizations WHERE due_at < 'infinity' OFFSET 0) AS k
JOIN memories AS m ON m.id = k.memory_id WHERE m.user_id = :user
