-- name: gauges
-- Returns what PostgreSQL knows of the outbox, the captures and the sync runs.
WITH runs AS (
    SELECT trigger, started_at, finished_at, statistics, error,
        CASE WHEN finished_at IS NULL THEN 'unfinished' WHEN error IS NOT NULL THEN 'failed'
            WHEN (statistics ->> 'errors')::float8 > 0 THEN 'partial' ELSE 'success' END AS outcome
    FROM sync_runs
), last AS (
    SELECT * FROM runs WHERE finished_at IS NOT NULL ORDER BY started_at DESC LIMIT 1
)
SELECT outbox.*, captures.*,
    (SELECT jsonb_build_object('at', extract(epoch FROM finished_at), 'outcome', outcome, 'statistics', statistics,
        'seconds', extract(epoch FROM finished_at - started_at)) FROM last) AS last,
    (SELECT extract(epoch FROM max(finished_at)) FROM runs WHERE outcome = 'success') AS success,
    (SELECT jsonb_agg(r) FROM (
        SELECT trigger, outcome, count(*) FROM runs GROUP BY 1, 2) AS r) AS runs,
    (SELECT jsonb_object_agg(name, total) FROM (
        SELECT entry.key AS name, sum(entry.value::float8) AS total
        FROM runs, jsonb_each(statistics) AS entry WHERE jsonb_typeof(entry.value) = 'number' GROUP BY 1
    ) AS sums) AS sums
FROM (
    SELECT count(*) AS waiting, count(*) FILTER (WHERE attempts >= ${stuck_after}) AS stuck,
        coalesce(extract(epoch FROM now() - min(written_at)), 0) AS oldest
    FROM index_outbox
) AS outbox, (
    SELECT count(*) AS captures_waiting,
        coalesce(extract(epoch FROM now() - min(created_at)), 0) AS oldest_capture,
        (SELECT count(*) FROM captures WHERE status = 'failed') AS captures_failed
    FROM captures WHERE status IN ('pending', 'working')
) AS captures
