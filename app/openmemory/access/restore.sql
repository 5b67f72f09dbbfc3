-- name: adopt
-- Gives the user and their apps the ids from the archive, and lists the user's apps after that.
-- One statement, so that the foreign keys are checked when all ids have changed. They refuse it if any row of any table
-- refers to the user or to one of these apps.
WITH adopted AS (
    SELECT * FROM (${other_ids}) AS o WHERE NOT EXISTS (SELECT FROM apps AS a WHERE a.id = o.id)
), renumbered AS (
    UPDATE users SET id = :new WHERE id = :user AND id <> :new
)
UPDATE apps AS a SET id = coalesce(adopted.id, a.id), owner_id = :new
FROM apps AS mine LEFT JOIN adopted ON adopted.present = mine.id
WHERE a.id = mine.id AND mine.owner_id = :user
RETURNING a.id, a.name, adopted.id IS NOT NULL AS adopted

-- name: fill_user
-- Fills the empty fields of the user from the archive.
-- The user's own values are kept: an archive only fills what is empty.
UPDATE users AS u SET name = n.name, email = n.email, metadata = n.metadata, created_at = n.created_at,
    updated_at = now()
FROM (
    SELECT id,
        CASE WHEN name IS NULL OR name = user_id THEN coalesce(CAST(:name AS text), name) ELSE name END AS name,
        CASE WHEN email IS NULL AND NOT EXISTS (SELECT FROM users AS o WHERE o.email = CAST(:email AS text))
            THEN CAST(:email AS text) ELSE email END AS email,
        :metadata || metadata AS metadata, least(created_at, CAST(:created_at AS timestamptz)) AS created_at
    FROM users WHERE id = :user
) AS n
WHERE u.id = n.id AND (u.name, u.email, u.metadata, u.created_at) IS DISTINCT FROM
    (n.name, n.email, n.metadata, n.created_at)

-- name: find_rules
-- Finds the app and the object that each rule of the archive is about, and says which of them is missing.
UPDATE incoming_access_controls AS r SET
    subject_target = targets.subject, object_target = targets.object,
    problem = CASE
        WHEN r.subject_id IS NOT NULL AND targets.subject IS NULL THEN 'speaks to an app that is not in the archive'
        WHEN r.object_id IS NOT NULL AND targets.object IS NULL
            THEN 'is about a ' || r.object_type || ' that is not in the archive' END
FROM (
    SELECT i.id,
        (SELECT target FROM incoming_apps AS a WHERE a.id = i.subject_id) AS subject,
        CASE i.object_type
            WHEN 'memory' THEN coalesce(
                (SELECT target FROM restored AS m WHERE m.id = i.object_id),
                (SELECT m.id FROM memories AS m WHERE m.id = i.object_id AND m.user_id = :user))
            WHEN 'app' THEN (SELECT target FROM incoming_apps AS a WHERE a.id = i.object_id)
            WHEN 'category' THEN (SELECT target FROM incoming_categories AS c WHERE c.id = i.object_id)
        END AS object
    FROM incoming_access_controls AS i
) AS targets
WHERE targets.id = r.id
