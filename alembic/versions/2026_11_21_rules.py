"""Users know when their rules changed, and points carry what rules and filters speak of."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_21_rules"
down_revision = "2026_11_21_keys"
branch_labels = None
depends_on = None

# Points of one version lack what the other one filters by: every one is written again, with the vector that is kept.
WRITE_AGAIN = """
INSERT INTO index_marks (kind, id) SELECT 'memory', id FROM memories WHERE state = 'active'
ON CONFLICT (kind, id) DO UPDATE SET revision = index_marks.revision + 1, attempts = 0
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("users", sa.Column("rules_revision", sa.BigInteger(), server_default=sa.text("0"), nullable=False))
    op.drop_index("idx_access_allow", table_name="access_controls")
    op.create_index("idx_access_subject_effect", "access_controls", ["subject_id", "effect", "object_key"])
    op.execute(WRITE_AGAIN)


def downgrade() -> None:
    op.drop_index("idx_access_subject_effect", table_name="access_controls")
    op.create_index("idx_access_allow", "access_controls", ["subject_id"], postgresql_where=sa.text("effect = 'allow'"))
    op.drop_column("users", "rules_revision")
    op.execute(WRITE_AGAIN)
