"""Users by their internal id."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import select

from app.access.models import User
from app.database import Database


async def name_of(database: Database, user_id: UUID) -> str | None:
    """The name of the user with this internal id."""
    async with database.statement() as tx:
        found: str | None = await tx.scalar(select(User.user_id).where(User.id == user_id))
    return found
