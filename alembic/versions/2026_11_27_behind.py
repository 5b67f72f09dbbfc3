"""Captures that wait behind an earlier one are passed over, so that the next one is found by its index alone."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_behind"
down_revision = "2026_11_27_registrations"
branch_labels = None
depends_on = None

COLUMN = """
SET LOCAL lock_timeout = '10s';
ALTER TABLE captures ADD COLUMN behind boolean NOT NULL DEFAULT false;
UPDATE captures AS c SET behind = true WHERE c.status IN ('pending', 'working') AND EXISTS (
    SELECT FROM captures AS o WHERE o.status IN ('pending', 'working') AND o.user_id = c.user_id
        AND o.namespace = c.namespace AND (o.created_at, o.id) < (c.created_at, c.id));
CREATE INDEX idx_capture_due ON captures (due_at) WHERE status IN ('pending', 'working') AND NOT behind;
"""

# A claim marks a capture while it holds its row. So does this function before it looks, each in a statement of its own:
# either the claim sees that the earlier capture has ended, or this function sees the mark.
NEXT = """
CREATE FUNCTION captures_next(user_id uuid, namespace text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    next_id uuid;
BEGIN
    SELECT c.id INTO next_id FROM captures AS c
    WHERE c.status IN ('pending', 'working') AND c.user_id = $1 AND c.namespace = $2
    ORDER BY c.user_id, c.namespace, c.created_at, c.id LIMIT 1 FOR NO KEY UPDATE;
    UPDATE captures AS c SET behind = false WHERE c.id = next_id AND c.behind;
END
$$;
"""

# Only what was not behind another one can have held something up. What comes to another namespace with its mark may be
# the first one there. A join of both tables would take the square of their sizes.
ENDED = """
CREATE FUNCTION captures_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM captures_next(g.user_id, g.namespace) FROM (
        SELECT DISTINCT o.user_id, o.namespace FROM gone AS o
        WHERE o.status IN ('pending', 'working') AND NOT o.behind ORDER BY 1, 2) AS g;
    RETURN NULL;
END
$$;
CREATE FUNCTION captures_updated() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM captures_next(g.user_id, g.namespace) FROM (
        SELECT DISTINCT l.user_id, l.namespace FROM (
            (SELECT id, user_id, namespace FROM before WHERE status IN ('pending', 'working') AND NOT behind
            EXCEPT SELECT id, user_id, namespace FROM after WHERE status IN ('pending', 'working'))
            UNION ALL
            (SELECT id, user_id, namespace FROM after WHERE status IN ('pending', 'working') AND behind
            EXCEPT SELECT id, user_id, namespace FROM before WHERE status IN ('pending', 'working'))
        ) AS l ORDER BY 1, 2) AS g;
    RETURN NULL;
END
$$;
CREATE TRIGGER deleted AFTER DELETE ON captures REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION captures_deleted();
CREATE TRIGGER updated AFTER UPDATE ON captures REFERENCING OLD TABLE AS before NEW TABLE AS after
    FOR EACH STATEMENT EXECUTE FUNCTION captures_updated();
"""

UNDO = """
SET LOCAL lock_timeout = '10s';
DROP TRIGGER deleted ON captures;
DROP TRIGGER updated ON captures;
DROP FUNCTION captures_deleted(), captures_updated(), captures_next(uuid, text);
DROP INDEX idx_capture_due;
ALTER TABLE captures DROP COLUMN behind;
"""


def upgrade() -> None:
    for statement in (COLUMN, NEXT, ENDED):
        op.execute(statement)


def downgrade() -> None:
    op.execute(UNDO)
