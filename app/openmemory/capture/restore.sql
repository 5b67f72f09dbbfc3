-- name: problems
-- Marks the captures of the archive that cannot come in, with the reason.
-- A capture comes in only with all of its operations, because a partial set cannot be undone.
UPDATE incoming_captures AS i SET problem = p.problem
FROM (
    SELECT DISTINCT ON (s.capture_id) s.capture_id,
        coalesce(s.problem, 'is about a memory that did not come in') AS problem
    FROM incoming_capture_steps AS s
    WHERE s.problem IS NOT NULL OR (s.kind = 'operation'
        AND (s.memory_target IS NULL OR (s.superseded_id IS NOT NULL AND s.superseded_target IS NULL)))
    ORDER BY s.capture_id, s.place
) AS p
WHERE p.capture_id = i.id AND NOT i.known

-- name: add
-- Adds the captures of the archive that do not exist yet, with their operations and refused ones.
INSERT INTO captures (id, user_id, app_id, namespace, status, input, options, principal, hash,
    attempts, bad_answers, calls, prompt_tokens, completion_tokens, error, model, seconds, created_at, updated_at,
    finished_at, operations, refused, memory_ids)
SELECT i.target, :user, i.app_target, i.namespace, i.status, i.input, i.options, i.principal, i.hash,
    i.attempts, i.bad_answers, i.calls, i.prompt_tokens, i.completion_tokens, i.error, i.model, i.seconds,
    i.created_at, i.updated_at,
    CASE WHEN i.status <> 'pending' THEN least(coalesce(i.finished_at, i.updated_at), now()) END,
    ${operations}, ${refused},
    ARRAY(
        SELECT DISTINCT t.id FROM incoming_capture_steps AS s
        CROSS JOIN LATERAL (VALUES (s.memory_target), (s.superseded_target)) AS t(id)
        WHERE s.capture_id = i.id AND t.id IS NOT NULL ORDER BY 1)
FROM incoming_captures AS i
WHERE i.problem IS NULL AND NOT i.known
ORDER BY i.place
RETURNING id
