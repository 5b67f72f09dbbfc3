"""The first tables: users and apps, memories and their past, rules, logs, marks and vectors."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_21_first"
down_revision = None
branch_labels = None
depends_on = None

LEXICAL_KEYS = """
CREATE FUNCTION lexical_keys(user_id uuid, namespace text, words tsvector) RETURNS bigint[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL UNSAFE COST 1000 AS $$
    SELECT array_agg(hashtextextended(lexeme, scope.seed))
    FROM unnest(words), (VALUES (uuid_hash_extended(user_id, 0)),
        (hashtextextended(namespace, uuid_hash_extended(user_id, 0)))) AS scope(seed)
$$
"""

STATE = postgresql.ENUM("active", "paused", "archived", "deleted", name="memory_state", create_type=False)


def upgrade() -> None:
    for extension in ("btree_gin", "pg_trgm"):
        op.execute(f"CREATE EXTENSION IF NOT EXISTS {extension}")
    STATE.create(op.get_bind())
    op.execute(LEXICAL_KEYS)
    op.create_table(
        "categories",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_categories"),
        sa.UniqueConstraint("name", name="uq_categories_name"),
    )
    op.create_table(
        "embeddings",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("text_hash", sa.String(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", "model", name="pk_embeddings"),
    )
    op.create_table(
        "index_marks",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.Column("marked_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("kind", "id", name="pk_index_marks"),
    )
    op.create_index("ix_index_marks_due", "index_marks", ["due_at", "marked_at"], unique=False)
    op.create_table(
        "sync_runs",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("trigger", sa.String(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("statistics", postgresql.JSONB(astext_type=sa.Text()), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sync_runs"),
    )
    op.create_index("ix_sync_runs_started_at", "sync_runs", ["started_at"], unique=False)
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("user_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=True),
        sa.Column("email", sa.String(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("email", name="uq_users_email"),
        sa.UniqueConstraint("user_id", name="uq_users_user_id"),
    )
    op.create_table(
        "apps",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("owner_id", sa.Uuid(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("description", sa.String(), nullable=True),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("is_active", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["users.id"], name="fk_apps_owner_id_users", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_apps"),
        sa.UniqueConstraint("owner_id", "name", name="uq_apps_owner_id_name"),
    )
    op.create_table(
        "lexical_statistics",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("term", sa.String(), nullable=False),
        sa.Column("documents", sa.Integer(), nullable=False),
        sa.Column("words", sa.BigInteger(), server_default=sa.text("0"), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_lexical_statistics_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("user_id", "namespace", "term", name="pk_lexical_statistics"),
    )
    op.create_table(
        "access_controls",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("subject_type", sa.String(), server_default=sa.text("'app'"), nullable=False),
        sa.Column("subject_id", sa.Uuid(), nullable=True),
        sa.Column("object_type", sa.String(), nullable=False),
        sa.Column("object_id", sa.Uuid(), nullable=True),
        sa.Column("object_name", sa.String(), nullable=True),
        sa.Column(
            "object_key",
            sa.String(),
            sa.Computed(
                "CASE WHEN object_type = 'all' THEN 'all' ELSE object_type || ':' || coalesce(object_name, object_id::text) END",
                persisted=True,
            ),
            nullable=False,
        ),
        sa.Column("effect", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "(object_type = 'all' AND object_id IS NULL AND object_name IS NULL) OR (object_type = 'namespace' AND object_id IS NULL AND object_name IS NOT NULL) OR (object_type IN ('memory', 'app', 'category') AND object_id IS NOT NULL AND object_name IS NULL)",
            name="ck_access_controls_object",
        ),
        sa.CheckConstraint("effect IN ('allow', 'deny')", name="ck_access_controls_effect"),
        sa.CheckConstraint("subject_type = 'app'", name="ck_access_controls_subject_type"),
        sa.ForeignKeyConstraint(
            ["subject_id"], ["apps.id"], name="fk_access_controls_subject_id_apps", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_access_controls_user_id_users", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_access_controls"),
    )
    op.create_index(
        "idx_access_allow",
        "access_controls",
        ["subject_id"],
        unique=False,
        postgresql_where=sa.text("effect = 'allow'"),
    )
    op.create_index("idx_access_object", "access_controls", ["object_type", "object_id"], unique=False)
    op.create_index(
        "idx_access_rule", "access_controls", ["user_id", "object_key", "subject_id", "effect"], unique=True
    )
    op.create_index(
        "idx_access_rule_every_app",
        "access_controls",
        ["user_id", "object_key", "effect"],
        unique=True,
        postgresql_where=sa.text("subject_id IS NULL"),
    )
    op.create_index("idx_access_subject", "access_controls", ["subject_type", "subject_id"], unique=False)
    op.create_table(
        "memories",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("state", STATE, server_default="active", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("archived_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("namespace", sa.String(), server_default=sa.text("'default'"), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=True),
        sa.Column("kind", sa.String(), server_default=sa.text("'memory'"), nullable=False),
        sa.Column("key", sa.String(), nullable=True),
        sa.Column("importance", sa.Double(), nullable=True),
        sa.Column("hash", sa.String(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_from", sa.DateTime(timezone=True), nullable=True),
        sa.Column("valid_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("superseded_by", sa.Uuid(), nullable=True),
        sa.Column("revision", sa.Integer(), server_default=sa.text("1"), nullable=False),
        sa.Column(
            "words",
            postgresql.TSVECTOR(),
            sa.Computed("to_tsvector('english'::regconfig, content)", persisted=True),
            nullable=False,
        ),
        sa.CheckConstraint("revision >= 1", name="ck_memories_revision"),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name="fk_memories_app_id_apps", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["superseded_by"], ["memories.id"], name="fk_memories_superseded_by_memories", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_memories_user_id_users", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_memories"),
    )
    op.create_index("idx_memory_app_state", "memories", ["app_id", "state"], unique=False)
    op.create_index(
        "idx_memory_content_trigram",
        "memories",
        ["user_id", "content"],
        unique=False,
        postgresql_using="gin",
        postgresql_ops={"content": "gin_trgm_ops"},
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_index(
        "idx_memory_lexical",
        "memories",
        [sa.literal_column("lexical_keys(user_id, namespace, words)")],
        unique=False,
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text("state = 'active'"),
    )
    # Its values are hashes: nothing that a plan could use.
    op.execute("ALTER INDEX idx_memory_lexical ALTER COLUMN 1 SET STATISTICS 0")
    op.create_index("idx_memory_user_app", "memories", ["user_id", "app_id"], unique=False)
    op.create_index("idx_memory_user_state", "memories", ["user_id", "state", "created_at", "id"], unique=False)
    op.create_index("ix_memories_superseded_by", "memories", ["superseded_by"], unique=False)
    op.create_index(
        "uq_memories_active_text",
        "memories",
        ["user_id", "namespace", "app_id", "hash"],
        unique=True,
        postgresql_where=sa.text("state = 'active'"),
    )
    op.create_table(
        "memory_access_logs",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=False),
        sa.Column("accessed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("access_type", sa.String(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name="fk_memory_access_logs_app_id_apps", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name="fk_memory_access_logs_memory_id_memories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_memory_access_logs"),
    )
    op.create_index("idx_access_app_time", "memory_access_logs", ["app_id", "accessed_at"], unique=False)
    op.create_index("idx_access_memory_time", "memory_access_logs", ["memory_id", "accessed_at"], unique=False)
    op.create_table(
        "memory_categories",
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("category_id", sa.Uuid(), nullable=False),
        sa.ForeignKeyConstraint(
            ["category_id"], ["categories.id"], name="fk_memory_categories_category_id_categories", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name="fk_memory_categories_memory_id_memories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("memory_id", "category_id", name="pk_memory_categories"),
    )
    op.create_index("idx_memory_category", "memory_categories", ["category_id", "memory_id"], unique=False)
    op.create_table(
        "memory_revisions",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("old_text", sa.String(), nullable=True),
        sa.Column("new_text", sa.String(), nullable=False),
        sa.Column("metadata", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("changed_by", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=True),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name="fk_memory_revisions_memory_id_memories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_memory_revisions"),
        sa.UniqueConstraint("memory_id", "revision", name="uq_memory_revisions_memory_id_revision"),
    )
    op.create_table(
        "memory_status_history",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("changed_by", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=True),
        sa.Column("old_state", STATE, nullable=True),
        sa.Column("new_state", STATE, nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["changed_by"], ["users.id"], name="fk_memory_status_history_changed_by_users", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name="fk_memory_status_history_memory_id_memories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_memory_status_history"),
    )
    op.create_index("idx_history_memory_state", "memory_status_history", ["memory_id", "new_state"], unique=False)
    op.create_index("idx_history_user_time", "memory_status_history", ["changed_by", "changed_at"], unique=False)


def downgrade() -> None:
    op.drop_index("idx_history_user_time", table_name="memory_status_history")
    op.drop_index("idx_history_memory_state", table_name="memory_status_history")
    op.drop_table("memory_status_history")
    op.drop_table("memory_revisions")
    op.drop_index("idx_memory_category", table_name="memory_categories")
    op.drop_table("memory_categories")
    op.drop_index("idx_access_memory_time", table_name="memory_access_logs")
    op.drop_index("idx_access_app_time", table_name="memory_access_logs")
    op.drop_table("memory_access_logs")
    op.drop_index("uq_memories_active_text", table_name="memories", postgresql_where=sa.text("state = 'active'"))
    op.drop_index("ix_memories_superseded_by", table_name="memories")
    op.drop_index("idx_memory_user_state", table_name="memories")
    op.drop_index("idx_memory_user_app", table_name="memories")
    op.drop_index(
        "idx_memory_lexical",
        table_name="memories",
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text("state = 'active'"),
    )
    op.drop_index(
        "idx_memory_content_trigram",
        table_name="memories",
        postgresql_using="gin",
        postgresql_ops={"content": "gin_trgm_ops"},
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text("state = 'active'"),
    )
    op.drop_index("idx_memory_app_state", table_name="memories")
    op.drop_table("memories")
    op.drop_index("idx_access_subject", table_name="access_controls")
    op.drop_index(
        "idx_access_rule_every_app", table_name="access_controls", postgresql_where=sa.text("subject_id IS NULL")
    )
    op.drop_index("idx_access_rule", table_name="access_controls")
    op.drop_index("idx_access_object", table_name="access_controls")
    op.drop_index("idx_access_allow", table_name="access_controls", postgresql_where=sa.text("effect = 'allow'"))
    op.drop_table("access_controls")
    op.drop_table("lexical_statistics")
    op.drop_table("apps")
    op.drop_table("users")
    op.drop_index("ix_sync_runs_started_at", table_name="sync_runs")
    op.drop_table("sync_runs")
    op.drop_index("ix_index_marks_due", table_name="index_marks")
    op.drop_table("index_marks")
    op.drop_table("embeddings")
    op.drop_table("categories")
    op.execute("DROP FUNCTION lexical_keys(uuid, text, tsvector)")
    STATE.drop(op.get_bind())
