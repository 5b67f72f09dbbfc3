"""Users by ids: their own internal one, and those of what is theirs."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from sqlalchemy import column, select, table

from openmemory.access.models import App, User
from openmemory.database.engine import Database

# By name only: the models of both stand above this package.
_MEMORIES = table("memories", column("id"), column("user_id"))
_CAPTURES = table("captures", column("id"), column("user_id"))

Belonging = Literal["memory", "app", "capture"]


async def name_of(database: Database, user_id: UUID) -> str | None:
    """The name of the user with this internal id."""
    async with database.statement() as tx:
        found: str | None = await tx.scalar(select(User.user_id).where(User.id == user_id))
    return found


async def owner_of(database: Database, what: Belonging, id_: UUID) -> str | None:
    """The name of the user whose memory, app or capture this is; None if there is none. It decides nothing: only who
    may speak for every user may be told."""
    query = select(User.user_id)
    if what != "app":
        of = _MEMORIES if what == "memory" else _CAPTURES
        query = query.join(of, of.c.user_id == User.id).where(of.c.id == id_)
    else:
        query = query.join(App, App.owner_id == User.id).where(App.id == id_)
    async with database.statement() as tx:
        found: str | None = await tx.scalar(query)
    return found
