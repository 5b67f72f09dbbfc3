-- name: find
-- Finds what each policy of the archive applies to, and says what is missing.
UPDATE incoming_archive_policies AS p SET target = targets.target, problem = CASE
    WHEN p.criteria_type <> 'namespace' AND targets.target IS NULL
        THEN 'criteria_id: no ' || p.criteria_type || ' of the archive has this id' END
FROM (
    SELECT i.id,
        CASE i.criteria_type
            WHEN 'user' THEN CAST(:user AS uuid)
            WHEN 'app' THEN (SELECT target FROM incoming_apps AS a WHERE a.id = i.criteria_id)
            WHEN 'category' THEN (SELECT target FROM incoming_categories AS c WHERE c.id = i.criteria_id)
        END AS target
    FROM incoming_archive_policies AS i
) AS targets
WHERE targets.id = p.id
