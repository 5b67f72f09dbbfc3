"""Memories as the index sees them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Integer, bindparam, func, select

from app.access.models import User
from app.database import Tx
from app.index.port import Entry
from app.index.writing import Item
from app.memories.models import Memory, State
from app.memories.repository import CATEGORY_NAMES
from app.prepared import Prepared


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

    async def revisions(self, tx: Tx, ids: Sequence[UUID]) -> dict[UUID, int]:
        """The revisions of those of the memories that are active."""
        query = select(Memory.id, Memory.revision).where(Memory.id == func.any(list(ids)), Memory.state == State.ACTIVE)
        return {row.id: row.revision for row in await tx.execute(query)}

    async def count(self, tx: Tx, *, user: UUID | None) -> int:
        """How many memories are active."""
        query = select(func.count()).select_from(Memory).where(Memory.state == State.ACTIVE)
        if user is not None:
            query = query.where(Memory.user_id == user)
        return (await tx.execute(query)).scalar_one()

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> list[Entry]:
        """A page of what the index should hold, in ascending order of id."""
        values = {"after": after or _FIRST, "limit": limit}
        if user is None:
            return [Entry(*row) for row in await _ENTRIES.rows(tx, values)]
        return [Entry(*row) for row in await _ENTRIES_OF_USER.rows(tx, values | {"user": user})]


_FIRST = UUID(int=0)
_PAGE = (
    select(Memory.id, Memory.user_id, Memory.revision)
    .where(Memory.state == State.ACTIVE, Memory.id > bindparam("after"))
    .order_by(Memory.id)
    .limit(bindparam("limit", type_=Integer()))
)
_ENTRIES = Prepared(_PAGE)
_ENTRIES_OF_USER = Prepared(_PAGE.where(Memory.user_id == bindparam("user")))
