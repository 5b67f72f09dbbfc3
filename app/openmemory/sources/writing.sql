-- name: add
-- Adds passages to a source with their outbox entries, stores what is known of the source, and counts the new ones.
WITH new AS (
    INSERT INTO passages (id, source_id, user_id, app_id, namespace, thread_id, kind, position, heading, first_line,
                          last_line, content, labels, symbols)
    SELECT id, :source_id, :user_id, :app_id, :namespace, :thread_id, :kind, position, heading, first_line,
           last_line, content, labels, symbols
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r(
        id uuid, position integer, heading text, first_line integer, last_line integer, content text, labels text[],
        symbols text[])
    RETURNING id, user_id
), source AS (
    UPDATE sources SET hash = :hash, language = :language, bytes = :bytes, length = :length, updated_at = now(),
        media_type = :media_type, title = :title, object_key = :object_key
    WHERE id = :source_id
), entries AS (
    ${entries}
)
SELECT count(*) FROM new
