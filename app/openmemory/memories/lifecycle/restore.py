"""Imports archive policies from an archive."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller
from openmemory.memories.lifecycle.policies import MAX_POLICIES

_TO_FIND = text(
    "ALTER TABLE incoming_archive_policies ADD target uuid, ADD problem text, ADD known boolean DEFAULT false"
)
_FIND = text(load_sql(__name__, "find"))
# There is at most one policy per criterion and action. The user's existing policy stays; of two in the archive the
# first is imported.
_MARK_KNOWN = text(
    """
    UPDATE incoming_archive_policies AS p SET known = true
    WHERE p.problem IS NULL AND (
        EXISTS (
            SELECT FROM archive_policies AS e WHERE e.user_id = :user AND e.criteria_type = p.criteria_type
            AND e.action = p.action AND (e.criteria_id = p.target OR e.criteria_name = p.criteria_name))
        OR p.id NOT IN (
            SELECT DISTINCT ON (criteria_type, target, criteria_name, action) id FROM incoming_archive_policies
            WHERE problem IS NULL ORDER BY criteria_type, target, criteria_name, action, place))
    """
)
_LIMIT = text(
    """
    UPDATE incoming_archive_policies AS p SET problem = 'is one too many: a user has at most ' || :most
    FROM (
        SELECT id, row_number() OVER (ORDER BY place) AS turn FROM incoming_archive_policies
        WHERE problem IS NULL AND NOT known
    ) AS n
    WHERE n.id = p.id AND n.turn + (SELECT count(*) FROM archive_policies WHERE user_id = :user) > :number
    """
)
_ADD = text(
    """
    INSERT INTO archive_policies (id, user_id, criteria_type, criteria_id, criteria_name, action, days_to_archive,
        created_at)
    SELECT CASE WHEN e.id IS NULL THEN p.id ELSE gen_random_uuid() END,
        :user, p.criteria_type, p.target, p.criteria_name, p.action, p.days_to_archive, p.created_at
    FROM incoming_archive_policies AS p LEFT JOIN archive_policies AS e ON e.id = p.id
    WHERE p.problem IS NULL AND NOT p.known ORDER BY p.place
    """
)


async def restore_policies(tx: Tx, caller: Caller) -> int:
    """Create the policies that do not exist yet. Returns their number.

    The apps and categories must be resolved before, and the user row locked, as in every transaction that creates
    policies.
    """
    mine = {"user": caller.user_id}
    await tx.execute(_TO_FIND)
    await tx.execute(_FIND, mine)
    await tx.execute(_MARK_KNOWN, mine)
    await tx.execute(_LIMIT, mine | {"most": str(MAX_POLICIES), "number": MAX_POLICIES})
    return (await tx.execute(_ADD, mine)).rowcount
