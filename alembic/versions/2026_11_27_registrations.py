"""Each app has a registration of a project of its own, beside those that a rule hides from it."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_registrations"
down_revision = "2026_11_27_installation"
branch_labels = None
depends_on = None

UPGRADE = """
SET LOCAL lock_timeout = '10s';
ALTER TABLE projects
    DROP CONSTRAINT uq_projects_user_id_namespace,
    ADD CONSTRAINT uq_projects_user_id_namespace_app_id UNIQUE (user_id, namespace, app_id);
"""

# The first registration of a namespace is the one that counts.
DOWNGRADE = """
SET LOCAL lock_timeout = '10s';
DELETE FROM projects AS p USING projects AS first
WHERE first.user_id = p.user_id AND first.namespace = p.namespace
    AND (first.created_at, first.id) < (p.created_at, p.id);
ALTER TABLE projects
    DROP CONSTRAINT uq_projects_user_id_namespace_app_id,
    ADD CONSTRAINT uq_projects_user_id_namespace UNIQUE (user_id, namespace);
"""


def upgrade() -> None:
    op.execute(UPGRADE)


def downgrade() -> None:
    op.execute(DOWNGRADE)
