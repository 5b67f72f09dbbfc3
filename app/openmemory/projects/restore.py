"""Restores links from an archive, after its memories."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller

TABLES: Mapping[str, str] = {
    "incoming_links": "from_id uuid, rel text, to_id uuid, app uuid, created_at timestamptz",
}
"""Columns of the temporary table, in COPY order."""

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
    LEFT JOIN incoming_apps AS a ON a.id = l.app
    WHERE f.target <> t.target
    ORDER BY f.target, l.rel, t.target
    ON CONFLICT DO NOTHING
    """
)


async def restore_links(tx: Tx, caller: Caller) -> None:
    """Add the links that do not exist yet between memories of the archive."""
    await tx.execute(_LINKS, {"user": caller.user_id, "app": caller.app_id})
