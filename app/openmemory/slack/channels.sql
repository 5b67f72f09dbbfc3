-- name: stored
-- Lists the stored messages of a channel that a part of it may change, and tells which of them are gone.
SELECT p.id, p.external_id AS ts, p.content, p.speaker, s.locator,
    p.external_id <> ALL(:whole) AND (s.locator = ANY(:threads) OR (
        p.created_at > CAST(:after AS timestamptz) AND p.created_at <= CAST(:until AS timestamptz)
        AND coalesce(p.metadata ->> 'slack_thread_ts', p.external_id) = p.external_id)) IS TRUE AS gone
FROM passages AS p JOIN sources AS s ON s.id = p.source_id
WHERE p.user_id = :user_id AND s.app_id = :app_id AND s.namespace = :namespace AND s.kind = 'conversation'
    AND starts_with(s.locator, :prefix) AND p.external_id IS NOT NULL
    AND (p.created_at = ANY(CAST(:times AS timestamptz[]))
        OR (p.created_at > CAST(:after AS timestamptz) AND p.created_at <= CAST(:until AS timestamptz))
        OR p.source_id IN (
            SELECT id FROM sources WHERE app_id = :app_id AND namespace = :namespace AND kind = 'conversation'
                AND locator = ANY(:threads)))

-- name: add
-- Adds messages with their outbox entries and audit event, and returns their number.
WITH new AS (
    INSERT INTO passages (id, source_id, user_id, app_id, namespace, thread_id, kind, position, external_id,
                          speaker, content, metadata, created_at, labels)
    SELECT id, source_id, :user_id, :app_id, :namespace, thread_id, 'turn', position,
           external_id, speaker, content, metadata, created_at, labels
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
        id uuid, source_id uuid, thread_id text, position integer, external_id text, speaker text, content text,
        metadata jsonb, created_at timestamptz, labels text[])
    RETURNING id, user_id
), entries AS (
    ${entries}
), audited AS (${audited})
SELECT count(*) FROM new
