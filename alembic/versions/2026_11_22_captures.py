"""Texts from which a language model makes memories."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_22_captures"
down_revision = "2026_11_22_words"
branch_labels = None
depends_on = None


def _json(name: str, default: str) -> sa.Column:
    return sa.Column(name, postgresql.JSONB(), server_default=sa.text(f"'{default}'"), nullable=False)


def _number(name: str) -> sa.Column:
    return sa.Column(name, sa.Integer(), server_default=sa.text("0"), nullable=False)


def _time(name: str, default: str | None = None) -> sa.Column:
    text = sa.text(default) if default else None
    return sa.Column(name, sa.DateTime(timezone=True), server_default=text, nullable=default is None)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "captures",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("status", sa.String(), server_default=sa.text("'pending'"), nullable=False),
        sa.Column("input", postgresql.JSONB(), nullable=False),
        _json("options", "{}"),
        _json("principal", "{}"),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        _number("attempts"),
        _number("bad_answers"),
        _time("due_at", "now()"),
        sa.Column("holder", sa.Uuid(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        _json("operations", "[]"),
        _json("refused", "[]"),
        sa.Column("memory_ids", sa.ARRAY(sa.Uuid()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("model", sa.String(), nullable=True),
        _number("calls"),
        _number("prompt_tokens"),
        _number("completion_tokens"),
        sa.Column("seconds", sa.Float(), server_default=sa.text("0"), nullable=False),
        _time("created_at", "now()"),
        _time("updated_at", "now()"),
        _time("finished_at"),
        sa.CheckConstraint("status IN ('pending', 'working', 'done', 'failed', 'undone')", name="ck_captures_status"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_captures_user_id_users", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name="fk_captures_app_id_apps", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_captures"),
    )
    op.create_index("idx_capture_user_created", "captures", ["user_id", "created_at", "id"])
    op.create_index("idx_capture_hash", "captures", ["app_id", "hash", "created_at"])
    op.create_index(
        "uq_captures_idempotency_key",
        "captures",
        ["app_id", "idempotency_key"],
        unique=True,
        postgresql_where=sa.text("idempotency_key IS NOT NULL"),
    )
    op.create_index(
        "idx_capture_due",
        "captures",
        ["due_at", "created_at"],
        postgresql_where=sa.text("status IN ('pending', 'working')"),
    )
    op.create_index(
        "idx_capture_working", "captures", ["user_id", "namespace"], postgresql_where=sa.text("status = 'working'")
    )
    op.create_index(
        "idx_capture_finished", "captures", ["finished_at"], postgresql_where=sa.text("finished_at IS NOT NULL")
    )
    op.create_index("idx_capture_memories", "captures", ["memory_ids"], postgresql_using="gin")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("captures")
