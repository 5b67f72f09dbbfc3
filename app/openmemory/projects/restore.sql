-- name: links
-- Adds the links between memories of the archive.
-- Links to a memory that was left out are left out too. No cycle is looked for: an archive has none unless somebody
-- wrote it, and whoever follows links expects some.
INSERT INTO memory_links (from_id, rel, to_id, user_id, app_id, created_at)
SELECT DISTINCT ON (f.target, l.rel, t.target) f.target, l.rel, t.target, m.user_id,
    coalesce(a.target, :app), l.created_at
FROM incoming_links AS l
JOIN restored AS f ON f.id = l.from_id
JOIN restored AS t ON t.id = l.to_id
JOIN memories AS m ON m.id = f.target AND m.user_id = :user
JOIN memories AS o ON o.id = t.target AND o.user_id = :user
LEFT JOIN incoming_apps AS a ON a.id = l.app_id
WHERE f.target <> t.target
ORDER BY f.target, l.rel, t.target
ON CONFLICT DO NOTHING

-- name: projects
-- Registers the projects of the archive.
INSERT INTO projects AS p
    (user_id, app_id, namespace, name, root, repo, head, branch, metadata, created_at, updated_at)
SELECT DISTINCT ON (i.namespace, coalesce(a.target, :app)) :user, coalesce(a.target, :app), i.namespace, i.name,
    i.root, i.repo, i.head, i.branch, i.metadata,
    CASE WHEN EXISTS (SELECT FROM projects AS o WHERE o.user_id = :user AND o.namespace = i.namespace)
        THEN now() ELSE i.created_at END,
    i.updated_at
FROM incoming_projects AS i LEFT JOIN incoming_apps AS a ON a.id = i.app_id
ORDER BY i.namespace, coalesce(a.target, :app), i.created_at, i.updated_at, i.name
ON CONFLICT (user_id, namespace, app_id) DO UPDATE SET
    root = coalesce(p.root, excluded.root), repo = coalesce(p.repo, excluded.repo),
    head = coalesce(p.head, excluded.head), branch = coalesce(p.branch, excluded.branch),
    metadata = excluded.metadata || p.metadata
