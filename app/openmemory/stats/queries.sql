-- name: days
-- Counts the writes and accesses of apps on each day.
SELECT a.id AS app_id, a.name AS app_name, each.day, sum(each.written)::int AS written,
    sum(each.accessed)::int AS accessed
FROM apps AS a CROSS JOIN LATERAL (
    SELECT width_bucket(m.created_at, :days) AS day, count(*) AS written, 0 AS accessed
    FROM memories AS m WHERE m.app_id = a.id AND m.created_at >= :since AND m.created_at <= now() GROUP BY 1
    UNION ALL
    SELECT width_bucket(l.accessed_at, :days), 0, count(*)
    FROM memory_access_logs AS l
    WHERE l.app_id = a.id AND l.accessed_at >= :since AND l.accessed_at <= now() GROUP BY 1
) AS each
WHERE a.owner_id = :user AND (CAST(:app AS uuid) IS NULL OR a.id = :app)
GROUP BY a.id, each.day ORDER BY a.id, each.day
