-- name: store
-- Appends messages to a conversation, with their outbox entries and audit event, and returns their number.
WITH new AS (
    INSERT INTO passages (id, source_id, user_id, app_id, namespace, thread_id, kind, position, external_id,
                          speaker, content, metadata, created_at, labels, expires_at)
    SELECT id, :source_id, :user_id, :app_id, :namespace, :thread_id, 'turn', position,
           external_id, speaker, content, metadata, created_at, labels,
           now() + make_interval(days => CAST(:ttl_days AS integer))
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
        id uuid, position integer, external_id text, speaker text, content text, metadata jsonb,
        created_at timestamptz, labels text[])
    RETURNING id, user_id
), length AS (
    UPDATE sources SET length = :length, title = coalesce(:title, title), infer = :infer, state = 'active',
        updated_at = now(), closed_at = NULL, deleted_at = NULL
    WHERE id = :source_id
), entries AS (
    ${entries}
), audited AS (${audited})
SELECT count(*) FROM new
