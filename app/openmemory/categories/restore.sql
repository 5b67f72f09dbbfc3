-- name: limit
-- Marks which descriptions of the archive are new to the user: with an empty problem, or as one too many.
-- The user's existing description stays; of two for one category the first is imported.
UPDATE incoming_categories AS i SET problem = CASE
    WHEN n.turn + (SELECT count(*) FROM category_descriptions WHERE user_id = :user) > :number
        THEN 'own.description: is one too many: a user describes at most ' || CAST(:number AS text) ELSE '' END
FROM (
    SELECT id, row_number() OVER (ORDER BY place) AS turn FROM (
        SELECT DISTINCT ON (target) id, place FROM incoming_categories AS c
        WHERE own_description IS NOT NULL AND NOT EXISTS (
            SELECT FROM category_descriptions AS d WHERE d.user_id = :user AND d.category_id = c.target)
        ORDER BY target, place) AS new
) AS n
WHERE n.id = i.id
