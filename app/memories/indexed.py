"""Memories as the index sees them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import func, select

from app.access.models import User
from app.database import Tx
from app.index.deliver import Item
from app.index.port import Entry
from app.memories.models import Memory, State
from app.memories.repository import CATEGORY_NAMES


class IndexedMemories:
    """The active memories: what the index should hold."""

    async def items(self, tx: Tx, ids: Sequence[UUID]) -> list[Item]:
        """Those of the memories that are active."""
        query = (
            select(
                Memory.id,
                Memory.user_id,
                User.user_id.label("user_name"),
                Memory.app_id,
                Memory.namespace,
                Memory.kind,
                Memory.revision,
                Memory.created_at,
                Memory.updated_at,
                Memory.content,
                Memory.hash,
                CATEGORY_NAMES.label("categories"),
            )
            .join(User, User.id == Memory.user_id)
            .where(Memory.id == func.any(list(ids)), Memory.state == State.ACTIVE)
        )
        return [
            Item(
                id=row.id,
                user=row.user_id,
                user_name=row.user_name,
                app=row.app_id,
                namespace=row.namespace,
                kind=row.kind,
                revision=row.revision,
                created_at=row.created_at,
                updated_at=row.updated_at,
                text=row.content,
                text_hash=row.hash,
                categories=tuple(row.categories),
            )
            for row in await tx.execute(query)
        ]

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> list[Entry]:
        """A page of what the index should hold, in ascending order of id."""
        query = (
            select(Memory.id, Memory.user_id, Memory.revision)
            .where(Memory.state == State.ACTIVE)
            .order_by(Memory.id)
            .limit(limit)
        )
        if user is not None:
            query = query.where(Memory.user_id == user)
        if after is not None:
            query = query.where(Memory.id > after)
        return [Entry(row.id, row.user_id, row.revision) for row in await tx.execute(query)]
