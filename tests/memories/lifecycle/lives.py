"""Memories of some age, which tests move by the times that are stored rather than by waiting."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services


async def made(services: Services, caller: Caller, content: str, *, days: float = 0.0, **more: Any) -> UUID:
    """A memory that was made so many days ago, and has not changed since."""
    id_ = (await services.memories.add(caller, MemoryCreate(text=content, **more))).id
    await aged(services, id_, days)
    return id_


async def aged(services: Services, id_: UUID, days: float) -> None:
    """Let all that was ever done with a memory have been so many days earlier."""
    async with services.database.transaction() as tx:
        values = {"id": id_, "by": days * 86_400.0}
        for statement in (
            "UPDATE memories SET created_at = created_at - make_interval(secs => :by),"
            " updated_at = updated_at - make_interval(secs => :by) WHERE id = :id",
            "UPDATE memory_status_history SET changed_at = changed_at - make_interval(secs => :by)"
            " WHERE memory_id = :id",
        ):
            await tx.execute(text(statement), values)


async def ended(services: Services, id_: UUID, days: float) -> None:
    """Let a memory expire so many days from now; fewer than none: it has."""
    async with services.database.statement() as tx:
        statement = "UPDATE memories SET expires_at = now() + make_interval(secs => :by) WHERE id = :id"
        await tx.execute(text(statement), {"id": id_, "by": days * 86_400.0})


async def state(services: Services, id_: UUID) -> str:
    """The state of a memory, whoever may see it."""
    async with services.database.statement() as tx:
        return str(await tx.scalar(text("SELECT state FROM memories WHERE id = :id"), {"id": id_}))
