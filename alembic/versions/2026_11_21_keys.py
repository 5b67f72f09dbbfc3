"""API keys, the audit log, limits on the pace, and by which credential an MCP session was opened."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_21_keys"
down_revision = "2026_11_21_leases"
branch_labels = None
depends_on = None

APPEND_ONLY = """
CREATE FUNCTION audit_events_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND OLD.at < now() - interval '30 days' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit_events is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("prefix", sa.String(), nullable=False),
        sa.Column("hash", sa.LargeBinary(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("app", sa.String(), nullable=True),
        sa.Column("namespaces", sa.ARRAY(sa.Text()), nullable=True),
        sa.Column("scopes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("created_by", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("scopes <@ ARRAY['read', 'write', 'admin']", name="ck_api_keys_scopes"),
        sa.CheckConstraint("octet_length(hash) = 32", name="ck_api_keys_hash"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_api_keys_user_id_users", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("prefix", name="uq_api_keys_prefix"),
    )
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"])
    op.create_table(
        "audit_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.Column("event", sa.String(), nullable=False),
        sa.Column("result", sa.String(), server_default=sa.text("'ok'"), nullable=False),
        sa.Column("principal", sa.String(), nullable=False),
        sa.Column("principal_name", sa.String(), nullable=False),
        sa.Column("door", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=True),
        sa.Column("request", sa.String(), nullable=True),
        sa.Column("user_id", sa.Uuid(), nullable=True),
        sa.Column("app_id", sa.Uuid(), nullable=True),
        sa.Column("objects", sa.ARRAY(sa.Uuid()), nullable=True),
        sa.Column("count", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("detail", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
    )
    op.create_index("ix_audit_events_user_id", "audit_events", ["user_id", "id"])
    op.create_index("ix_audit_events_event", "audit_events", ["event", "id"])
    op.create_index("ix_audit_events_refused", "audit_events", ["id"], postgresql_where=sa.text("result <> 'ok'"))
    op.execute(APPEND_ONLY)
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_events"
        " FOR EACH ROW EXECUTE FUNCTION audit_events_append_only()"
    )
    op.execute(
        "CREATE TRIGGER append_only_whole BEFORE TRUNCATE ON audit_events"
        " FOR EACH STATEMENT EXECUTE FUNCTION audit_events_append_only()"
    )
    op.create_table(
        "rate_limits",
        sa.Column("bucket", sa.String(), nullable=False),
        sa.Column("period", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.Integer(), nullable=False),
        sa.Column("before", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("bucket", name="pk_rate_limits"),
        prefixes=["UNLOGGED"],
    )
    op.add_column("mcp_sessions", sa.Column("principal", sa.String(), server_default=sa.text("''"), nullable=False))
    op.add_column("mcp_sessions", sa.Column("bearer", sa.Boolean(), server_default=sa.text("false"), nullable=False))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("mcp_sessions", "bearer")
    op.drop_column("mcp_sessions", "principal")
    op.drop_table("rate_limits")
    op.drop_table("audit_events")
    op.execute("DROP FUNCTION audit_events_append_only()")
    op.drop_table("api_keys")
