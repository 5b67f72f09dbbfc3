"""What the language model was asked, by app and day, kept longer than the captures themselves."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_usage"
down_revision = "2026_11_22_filings"
branch_labels = None
depends_on = None

COUNTS = ("calls", "prompt_tokens", "completion_tokens", "done", "failed", "undone")

# The day of what is there already: when it ended, or was tried last.
FILL = """
INSERT INTO capture_usage (user_id, app_id, namespace, day, calls, prompt_tokens, completion_tokens, seconds, done,
    failed, undone)
SELECT user_id, app_id, namespace, (coalesce(finished_at, updated_at) AT TIME ZONE 'UTC')::date, sum(calls),
    sum(prompt_tokens), sum(completion_tokens), sum(seconds), count(*) FILTER (WHERE status = 'done'),
    count(*) FILTER (WHERE status = 'failed'), count(*) FILTER (WHERE status = 'undone')
FROM captures WHERE calls > 0 OR finished_at IS NOT NULL GROUP BY 1, 2, 3, 4
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    zero = sa.text("0")
    op.create_table(
        "capture_usage",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("app_id", sa.Uuid(), nullable=False),
        sa.Column("namespace", sa.String(), nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), server_default=zero, nullable=False) for name in COUNTS),
        sa.Column("seconds", sa.Float(), server_default=zero, nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_capture_usage_user_id_users", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["app_id"], ["apps.id"], name="fk_capture_usage_app_id_apps", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("app_id", "day", "namespace", name="pk_capture_usage"),
    )
    op.create_index("idx_capture_usage_user_day", "capture_usage", ["user_id", "day"])
    op.execute(FILL)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("capture_usage")
