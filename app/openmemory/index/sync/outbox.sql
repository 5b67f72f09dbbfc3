-- name: claim
-- Leases the entries of one kind that are due first, and returns them.
-- The CTE is materialized, because a subquery may be read again for each entry, and each reading would claim more.
WITH due AS MATERIALIZED (
    SELECT kind, id FROM index_outbox
    WHERE kind = '${kind}' AND due_at <= coalesce(CAST(:before AS timestamptz), now()) ${which}
        AND (CAST(:lease_holder AS text) IS NULL
            OR EXISTS (SELECT FROM index_lease WHERE holder = :lease_holder))
    ORDER BY due_at, written_at LIMIT :limit FOR UPDATE SKIP LOCKED
)
UPDATE index_outbox AS entry
SET due_at = now() + make_interval(secs => :lease), attempts = entry.attempts + 1, last_error = NULL,
    holder = :holder
FROM due WHERE entry.kind = due.kind AND entry.id = due.id
RETURNING entry.kind, entry.id, entry.revision, entry.attempts
