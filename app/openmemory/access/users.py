"""Looks up users by id: their internal id, or the id of something that belongs to them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

from sqlalchemy import column, select, table

from openmemory.access.models import App, User
from openmemory.database.engine import Database

# Referenced by table name: the models of both belong to higher-level packages.
_MEMORIES = table("memories", column("id"), column("user_id"))
_CAPTURES = table("captures", column("id"), column("user_id"))

Belonging = Literal["memory", "app", "capture"]


async def name_of(database: Database, user_id: UUID) -> str | None:
    """Returns the name of the user with this internal id."""
    async with database.statement() as tx:
        found: str | None = await tx.scalar(select(User.user_id).where(User.id == user_id))
    return found


async def owner_of(database: Database, what: Belonging, id_: UUID) -> str | None:
    """Returns the name of the user who owns this memory, app or capture; None if nobody does. It checks no access: only
    callers who may act for every user may see the result."""
    query = select(User.user_id)
    if what != "app":
        of = _MEMORIES if what == "memory" else _CAPTURES
        query = query.join(of, of.c.user_id == User.id).where(of.c.id == id_)
    else:
        query = query.join(App, App.owner_id == User.id).where(App.id == id_)
    async with database.statement() as tx:
        found: str | None = await tx.scalar(query)
    return found
