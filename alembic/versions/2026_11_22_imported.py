"""Accesses that came in from an archive are kept from the day they came."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_imported"
down_revision = "2026_11_22_lists"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("memory_access_logs", sa.Column("imported_at", sa.DateTime(timezone=True), nullable=True))
    op.drop_index("idx_access_time", table_name="memory_access_logs")
    op.create_index(
        "idx_access_time",
        "memory_access_logs",
        ["accessed_at"],
        postgresql_using="brin",
        postgresql_where=sa.text("imported_at IS NULL"),
    )
    op.create_index(
        "idx_access_imported",
        "memory_access_logs",
        ["imported_at"],
        postgresql_using="brin",
        postgresql_where=sa.text("imported_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_access_imported", table_name="memory_access_logs")
    op.drop_index("idx_access_time", table_name="memory_access_logs")
    op.create_index("idx_access_time", "memory_access_logs", ["accessed_at"], postgresql_using="brin")
    op.drop_column("memory_access_logs", "imported_at")
