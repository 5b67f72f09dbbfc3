-- name: keep
-- Stores pairs of memories of which the newer may replace the older.
INSERT INTO near_memories (newer, older, user_id, newer_hash, older_hash, nearness, probability, said_at)
SELECT p.newer, p.older, o.user_id, p.newer_hash, p.older_hash, p.nearness, p.probability, p.said_at
FROM unnest(CAST(:newer AS uuid[]), CAST(:older AS uuid[]), CAST(:newer_hashes AS text[]),
    CAST(:older_hashes AS text[]), CAST(:nearnesses AS real[]), CAST(:probabilities AS real[]),
    CAST(:times AS timestamptz[]))
    AS p(newer, older, newer_hash, older_hash, nearness, probability, said_at)
JOIN memories AS n ON n.id = p.newer
JOIN memories AS o ON o.id = p.older
FOR KEY SHARE OF n, o
ON CONFLICT (newer, older) DO UPDATE SET newer_hash = excluded.newer_hash, older_hash = excluded.older_hash,
    nearness = excluded.nearness, probability = excluded.probability, said_at = excluded.said_at
