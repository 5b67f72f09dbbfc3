"""Memories as the index sees them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import Integer, String, bindparam, func, select, text

from app.access.models import User
from app.database import Tx
from app.index.collections import same_uuid
from app.index.port import Entry, Point
from app.memories.models import Memory, State
from app.memories.repository import CATEGORY_NAMES
from app.prepared import Prepared


class IndexedMemories:
    """The active memories: what the index should hold."""

    async def points(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """Those of the memories that are active."""
        return [
            Point(
                id=id_,
                user=same_uuid(user),
                user_name=name,
                app=same_uuid(app),
                namespace=namespace,
                kind=kind,
                revision=revision,
                created_at=created_at,
                updated_at=updated_at,
                text=content,
                text_hash=hash_,
                categories=categories,
            )
            for (
                id_, user, name, app, namespace, kind, revision, created_at, updated_at, content, hash_, categories
            ) in await _POINTS.rows(tx, {"ids": list(ids)})
        ]  # fmt: skip

    async def revisions(self, tx: Tx, ids: str) -> list[int | None]:
        """The revisions of the memories that are active, in the order of the ids."""
        [(revisions,)] = await _REVISIONS.rows(tx, {"ids": ids})
        return list(revisions or ())

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
            rows = await _ENTRIES.rows(tx, values)
        else:
            rows = await _ENTRIES_OF_USER.rows(tx, values | {"user": user})
        return [Entry(id_, same_uuid(owner), revision) for id_, owner, revision in rows]


_POINTS = Prepared(
    select(
        Memory.id,
        Memory.user_id.cast(String),
        User.user_id.label("user_name"),
        Memory.app_id.cast(String),
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
    .where(Memory.id == func.any(bindparam("ids")), Memory.state == State.ACTIVE),
    plain=True,
)
_REVISIONS = Prepared(
    text(
        """
        SELECT array_agg(m.revision ORDER BY wanted.place)
        FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
        LEFT JOIN memories AS m ON m.id = wanted.id AND m.state = 'active'
        """
    ),
    plain=True,
)
_FIRST = UUID(int=0)
_PAGE = (
    select(Memory.id, Memory.user_id.cast(String), Memory.revision)
    .where(Memory.state == State.ACTIVE, Memory.id > bindparam("after"))
    .order_by(Memory.id)
    .limit(bindparam("limit", type_=Integer()))
)
_ENTRIES = Prepared(_PAGE, plain=True)
_ENTRIES_OF_USER = Prepared(_PAGE.where(Memory.user_id == bindparam("user")), plain=True)
