-- name: count
-- Counts `cost` against a bucket, and returns no row if that would exceed the limit.
INSERT INTO rate_limits AS r (bucket, period, used, before)
SELECT :bucket, floor(extract(epoch FROM now()) / :window), :cost, 0 WHERE :cost <= :limit
ON CONFLICT (bucket) DO UPDATE SET
    period = excluded.period,
    used = CASE WHEN r.period = excluded.period THEN r.used ELSE 0 END + :cost,
    before = CASE r.period WHEN excluded.period THEN r.before WHEN excluded.period - 1 THEN r.used ELSE 0 END
WHERE CASE WHEN r.period = excluded.period THEN r.used ELSE 0 END + :cost
    + CASE r.period WHEN excluded.period THEN r.before WHEN excluded.period - 1 THEN r.used ELSE 0 END
    * (1 - (extract(epoch FROM now()) / :window - excluded.period)) <= :limit
RETURNING used
