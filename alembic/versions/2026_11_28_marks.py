"""Captures that a lost mark kept from being read are found again: claims mark anew those that wait behind another."""

from __future__ import annotations

from alembic import op

revision = "2026_11_28_marks"
down_revision = "2026_11_27_near_memories"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute("UPDATE captures SET behind = false WHERE behind")


def downgrade() -> None:
    """The marks need no undoing: they are right or missing, and claims set the missing ones."""
