-- name: own
-- Lists the categories of users with the descriptions that count for them.
-- A user's own description takes precedence over the shared one. The shared one counts only for categories that the
-- user's clients have assigned.
SELECT u.id AS user_id, c.*
FROM unnest(:users) AS u(id) CROSS JOIN LATERAL (
    (SELECT c.id, c.name, d.description, 'user' AS described_by, d.created_at, d.updated_at
    FROM category_descriptions AS d JOIN categories AS c ON c.id = d.category_id
    WHERE d.user_id = u.id ORDER BY c.name LIMIT :most)
    UNION ALL
    (SELECT c.id, c.name, c.description, 'everybody', NULL, NULL FROM categories AS c
    WHERE c.description IS NOT NULL AND c.description <> '' AND c.name <> ALL(:known)
        AND c.description NOT LIKE 'Automatically created category%'
        AND EXISTS (
            SELECT FROM memory_categories AS f
            WHERE f.user_id = u.id AND f.category_id = c.id AND NOT f.automatic)
        AND NOT EXISTS (
            SELECT FROM category_descriptions AS d WHERE d.user_id = u.id AND d.category_id = c.id)
    ORDER BY c.name LIMIT :most)
    ORDER BY described_by DESC, name LIMIT :most
) AS c
