"""Hashes of the normal form of texts, so that line ends, trailing blanks and NFD make no duplicates."""

from __future__ import annotations

import hashlib
import unicodedata
from uuid import UUID

import sqlalchemy as sa

from alembic import op

revision = "2026_11_27_text_hashes"
down_revision = "2026_11_27_browser_sessions"
branch_labels = None
depends_on = None

_TOGETHER = 1_000
_TEXTS = sa.text("SELECT id, content, hash FROM memories WHERE id > :after ORDER BY id LIMIT :most")
# A memory whose text is there already in another form keeps its hash: both stay as they are.
_MEMORY = sa.text(
    """
    UPDATE memories AS m SET hash = :new WHERE m.id = :id AND (m.state <> 'active' OR NOT EXISTS (
        SELECT FROM memories AS o WHERE o.user_id = m.user_id AND o.namespace = m.namespace AND o.app_id = m.app_id
            AND o.hash = :new AND o.state = 'active' AND o.id <> m.id))
    """
)
# Their vectors and tokens are still those of the text. The tokens come first: they are deleted with another hash.
_DERIVED = [
    sa.text(f"UPDATE {table} SET text_hash = :new WHERE kind = 'memory' AND id = :id AND text_hash = :old")
    for table in ("embedding_tokens", "embeddings")
]


def upgrade() -> None:
    rehash(normal=True)


def downgrade() -> None:
    rehash(normal=False)


def rehash(*, normal: bool) -> None:
    """Hash the texts of all memories, in their normal form or as they are."""
    connection = op.get_bind()
    after = UUID(int=0)
    while rows := connection.execute(_TEXTS, {"after": after, "most": _TOGETHER}).all():
        after = rows[-1].id
        for row in rows:
            new = hash_of(normal_form(row.content) if normal else row.content)
            changed = {"id": row.id, "new": new, "old": row.hash}
            if new != row.hash and connection.execute(_MEMORY, changed).rowcount:
                for statement in _DERIVED:
                    connection.execute(statement, changed)


def hash_of(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def normal_form(text: str) -> str:
    """As the service did when this migration was written."""
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()
