"""Restores projects, anchors and links from an archive, after its memories."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller

_LINKS = text(load_sql(__name__, "links"))


_PROJECTS = text(load_sql(__name__, "projects"))
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
