-- name: page
-- Makes the words of the next page of a table anew, and returns its last id and the active ones that changed.
WITH page AS MATERIALIZED (
    SELECT id, ${columns} FROM ${table} WHERE CAST(:done AS uuid) IS NULL OR id > :done
    ORDER BY id LIMIT :page FOR NO KEY UPDATE
), fresh AS MATERIALIZED (
    SELECT id, ${words} AS words FROM page
), made AS (
    UPDATE ${table} m SET words = f.words, word_count = length(ts_filter(f.words, '{a,b,c,d}'))
    FROM fresh f WHERE m.id = f.id AND m.words IS DISTINCT FROM f.words
    RETURNING m.id, m.state
)
SELECT (SELECT id FROM page ORDER BY id DESC LIMIT 1) AS last,
    ARRAY(SELECT id FROM made WHERE state = 'active') AS changed
