"""Keys by which a repeated request is known, whether it was stored verbatim or captured.

Those of captures stood in the captures. What tells requests apart was worked out otherwise there, so they are forgotten.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_23_idempotency"
down_revision = "2026_11_23_audit_always"
branch_labels = None
depends_on = None

TABLE = "idempotency_keys"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        TABLE,
        sa.Column("app_id", sa.Uuid(), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=True),
        sa.Column("capture_id", sa.Uuid(), nullable=True),
        sa.Column("answer", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name=f"fk_{TABLE}_app_id_apps", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name=f"fk_{TABLE}_memory_id_memories", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["capture_id"], ["captures.id"], name=f"fk_{TABLE}_capture_id_captures", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("app_id", "principal", "key", name=f"pk_{TABLE}"),
    )
    for name in ("memory_id", "capture_id"):
        op.create_index(f"idx_{TABLE}_{name}", TABLE, [name], postgresql_where=sa.text(f"{name} IS NOT NULL"))
    op.create_index(f"idx_{TABLE}_created", TABLE, ["created_at"])
    op.drop_index("uq_captures_idempotency_key", "captures")
    op.drop_column("captures", "idempotency_key")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("captures", sa.Column("idempotency_key", sa.String(), nullable=True))
    op.create_index(
        "uq_captures_idempotency_key",
        "captures",
        ["app_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.drop_table(TABLE)
