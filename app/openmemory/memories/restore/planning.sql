-- name: resolve
-- Plans for each memory of the archive which row it goes to, and whether that row is added, replaced or left unchanged.
INSERT INTO restored (id, place, target, renamed, fate, app_id, final)
SELECT i.id, i.place, now_called.id, now_called.id <> i.id,
    CASE WHEN NOT EXISTS (SELECT FROM memories AS m WHERE m.id = now_called.id) THEN 'add'
        WHEN :overwrite THEN 'replace' ELSE 'skip' END,
    coalesce(a.target, :app), i.state
FROM incoming_memories AS i
LEFT JOIN LATERAL (
    SELECT m.id FROM memories AS m WHERE m.id = i.id AND m.user_id <> :user
    UNION ALL SELECT p.id FROM passages AS p WHERE p.id = i.id LIMIT 1
) AS e ON true
LEFT JOIN LATERAL (
    SELECT o.id FROM (VALUES (1, ${other}), (2, ${another}), (3, gen_random_uuid())) AS o(attempt, id)
    WHERE NOT EXISTS (SELECT FROM memories AS m WHERE m.id = o.id AND m.user_id <> :user)
    AND NOT EXISTS (SELECT FROM passages AS p WHERE p.id = o.id)
    AND NOT EXISTS (SELECT FROM incoming_memories AS m WHERE m.id = o.id)
    ORDER BY o.attempt LIMIT 1
) AS other ON e.id IS NOT NULL
LEFT JOIN incoming_apps AS a ON a.id = i.app_id
CROSS JOIN LATERAL (SELECT CASE WHEN e.id IS NULL THEN i.id ELSE other.id END AS id) AS now_called

-- name: assign
-- Plans the categories of the memories that are added or replaced.
-- The list of a memory names also the categories of its assignments, and only these tell which are automatic.
-- Categories that differ in case are one here: if a client assigned one of them, the assignment is not automatic.
INSERT INTO restored_assignments (memory, category, automatic)
SELECT r.target, c.target, bool_and(f.automatic)
FROM (
    SELECT memory, category, bool_or(automatic) AS automatic
    FROM (
        SELECT id AS memory, unnest(category_ids) AS category, false AS automatic FROM incoming_memories
        UNION ALL SELECT memory_id, category_id, automatic FROM incoming_memory_categories
    ) AS listed
    GROUP BY memory, category
) AS f
JOIN restored AS r ON r.id = f.memory AND r.fate <> 'skip'
JOIN incoming_categories AS c ON c.id = f.category
GROUP BY r.target, c.target

-- name: exact_duplicates
-- Plans to archive all but one of the active memories with one text.
UPDATE restored AS r SET final = 'archived', duplicate = true
FROM (
    SELECT r.id FROM (
        SELECT r.id, row_number() OVER (
            PARTITION BY i.namespace, r.app_id, i.hash
            ORDER BY r.fate = 'replace' AND NOT r.edited AND r.before = 'active' DESC, i.created_at, r.place
        ) AS place_among_equals
        FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
        WHERE r.fate <> 'skip' AND i.state = 'active'
    ) AS r WHERE r.place_among_equals > 1
    UNION SELECT r.id ${active_elsewhere}
) AS t WHERE t.id = r.id
