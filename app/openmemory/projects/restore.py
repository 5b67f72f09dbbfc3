"""Restores projects, anchors and links from an archive, after its memories."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller

# Links to a memory that was left out are left out too. No cycle is looked for: an archive has none unless somebody
# wrote it, and whoever follows links expects some.
_LINKS = text(
    """
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
    """
)


_PROJECTS = text(
    """
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
    """
)
"""A registration that an app has already stays, and gets what it lacks. Those of other apps come after it: what they
say must not come into one that others read."""

_ANCHORS = text(
    """
    INSERT INTO anchors (user_id, namespace, head, commit, reachable, checked_at)
    SELECT DISTINCT ON (namespace, head, commit) :user, namespace, head, commit, reachable, checked_at
    FROM incoming_anchors ORDER BY namespace, head, commit
    ON CONFLICT DO NOTHING
    """
)


async def restore_projects(tx: Tx, caller: Caller) -> None:
    """Register the projects of the archive, and add what it knows of their commits."""
    await tx.execute(_PROJECTS, {"user": caller.user_id, "app": caller.app_id})
    await tx.execute(_ANCHORS, {"user": caller.user_id})


async def restore_links(tx: Tx, caller: Caller) -> None:
    """Add the links that do not exist yet between memories of the archive."""
    await tx.execute(_LINKS, {"user": caller.user_id, "app": caller.app_id})
