"""The use cases of links between memories. A link is shown only to those who may read both ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, bindparam, delete, exc, func, literal_column, select, union_all
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.access.apps import refuse_if_paused, refuse_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Database, Tx, violated
from openmemory.database.locks import lock
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import ConflictError, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.entries import array_of
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import repository, validation
from openmemory.memories.lifecycle import superseding
from openmemory.memories.models import Memory
from openmemory.projects.models import MemoryLink
from openmemory.projects.schemas import Linked, LinkList, MemoryLinked

MAX_LINKS = 200
"""The number of links of a memory that a list shows."""

TRAIL = """
SELECT from_id, rel, to_id FROM memory_links
WHERE from_id = ANY(CAST(:ids AS uuid[])) AND to_id = ANY(CAST(:ids AS uuid[])) AND user_id = :user
"""
"""The links among memories that the caller has read."""

_TRAIL = CompiledStatement(bound(f"{TRAIL} ORDER BY from_id, rel, to_id", {"user": Uuid()}), plain=True)


class Links:
    """Links memories, lists and removes links, and puts a memory in the place of another."""

    def __init__(
        self, database: Database, delivery: OutboxDelivery, *, limits: LimitSettings, rates: RateLimiter
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._limits = limits
        self._rates = rates

    async def link(self, caller: Caller, from_id: UUID, rel: str, to_id: UUID) -> Linked:
        """Link two memories. `rel` is what the first is to the second. Links of one `rel` form no cycle.

        Raises:
            NotFound: one of them does not exist, or the caller may not read it.
            Invalid: the name of the relation is invalid, or both ends are the same memory.
            ConflictError: a cycle of this relation would be closed.
        """
        rel = relation(rel, self._limits)
        if from_id == to_id:
            raise Invalid("to_id", "must be another memory than from_id")
        caller.may_write()
        caller.may_read()
        await self._rates.save(caller, 1)
        return await self._link(caller, from_id, rel, to_id)

    @retry_on_conflict
    async def _link(self, caller: Caller, from_id: UUID, rel: str, to_id: UUID) -> Linked:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "link memories")
            await no_other(tx, caller)
            await _both(tx, caller, [from_id, to_id])
            if await leads(tx, caller, to_id, rel, from_id):
                raise ConflictError(
                    f"The second memory leads to the first by {rel!r} already, and a cycle would be closed.",
                    code="link_cycle",
                )
            values = {
                "from_id": from_id, "rel": rel, "to_id": to_id, "user_id": caller.user_id, "app_id": caller.app_id,
            }  # fmt: skip
            insert = pg_insert(MemoryLink).values(values).on_conflict_do_nothing().returning(MemoryLink.rel)
            try:
                created = (await tx.execute(insert)).one_or_none() is not None
            except exc.IntegrityError as error:
                if violated(error).startswith("fk_"):
                    raise repository.no_memory() from error
                raise
            if created:
                await audit_log.record(tx, caller, AuditAction.MEMORY_LINK, [from_id, to_id])
        return Linked(from_id, rel, to_id, created)

    @retry_on_conflict
    async def unlink(self, caller: Caller, from_id: UUID, rel: str, to_id: UUID) -> None:
        """Remove a link.

        Raises:
            NotFound: there is none, or the caller may not read both ends.
        """
        rel = relation(rel, self._limits)
        caller.may_write()
        caller.may_read()
        gone = delete(MemoryLink).where(MemoryLink.from_id == from_id, MemoryLink.rel == rel, MemoryLink.to_id == to_id)
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "remove links")
            await _both(tx, caller, [from_id, to_id])
            if (await tx.execute(gone.returning(MemoryLink.rel))).one_or_none() is None:
                raise NotFound("Link not found", code="link_not_found")
            await audit_log.record(tx, caller, AuditAction.MEMORY_UNLINK, [from_id, to_id])

    @retry_on_conflict
    async def supersede(self, caller: Caller, old: UUID, new: UUID) -> None:
        """Archive a memory in whose place another one is true from now on.

        Raises:
            NotFound: one of them does not exist, or the caller may not read it.
            Invalid: both are the same memory.
        """
        if old == new:
            raise Invalid("by", "must be another memory than memory_id")
        caller.may_write()
        caller.may_read()
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "archive memories")
            await _both(tx, caller, [old, new], change=True)
            await superseding.supersede(tx, caller, old, new)
        self._delivery.wake()

    async def of(self, caller: Caller, memory_id: UUID) -> LinkList:
        """The links of a memory whose other end the caller may read, oldest first.

        Raises:
            NotFound: there is no such memory, or the caller may not read it.
        """
        caller.may_read()
        await self._rates.search(caller)
        async with self._database.transaction() as tx:
            await _both(tx, caller, [memory_id])
            rows = (await tx.execute(_links_of(caller), caller.parameters | {"ids": [memory_id]})).all()
            await access_log.record(tx, caller, AccessType.GET, [row.id for row in rows], {"part": "links"})
        links = [MemoryLinked(row.rel, row.direction, row.id, row.content, row.labels, row.created_at) for row in rows]
        return LinkList(memory_id, links)


def relation(rel: str, limits: LimitSettings) -> str:
    """The name of a relation in its one form, such as `depends_on`.

    Raises:
        Invalid: it is blank or too long.
    """
    return "_".join(validation.name(rel, "rel", limits).lower().split())


async def no_other(tx: Tx, caller: Caller) -> None:
    """Let no other transaction link memories of the user until this one ends: two could close a cycle together."""
    await lock(tx, f"links {caller.user_id}")


async def _both(tx: Tx, caller: Caller, ids: list[UUID], *, change: bool = False) -> None:
    """Checks that the caller may read these memories, and keeps them from being erased meanwhile, or also from being
    changed."""
    which = select(Memory.id).where(Memory.id == func.any(ids), readable_by(caller, Memory))
    locked = which.order_by(Memory.id).with_for_update(read=not change, key_share=True)
    if len((await tx.scalars(locked, caller.parameters)).all()) < len(ids):
        raise repository.no_memory()


async def leads(tx: Tx, caller: Caller, start: UUID, rel: str, end: UUID) -> bool:
    """One memory leads to another by links of this relation, over memories that the caller may read."""
    reached = (select(MemoryLink.to_id.label("id")).where(MemoryLink.from_id == start, MemoryLink.rel == rel)).cte(
        "reached", recursive=True
    )
    further = (
        select(MemoryLink.to_id)
        .join(reached, MemoryLink.from_id == reached.c.id)
        .join(Memory, Memory.id == MemoryLink.from_id)
        .where(MemoryLink.rel == rel, readable_by(caller, Memory))
    )
    reached = reached.union(further)
    there = select(reached.c.id).where(reached.c.id == end).limit(1)
    return await tx.scalar(there, caller.parameters) is not None


def _links_of(caller: Caller) -> Any:
    """Selects the links of the memories `ids`. The caller may read the other ends."""
    ids = bindparam("ids", type_=ARRAY(Uuid()))
    parts: list[Any] = [
        select(
            literal_column(f"'{direction}'").label("direction"), here.label("memory"), MemoryLink.rel,
            Memory.id.label("id"), Memory.content, Memory.labels, MemoryLink.created_at.label("created_at"),
        )
        .join(Memory, Memory.id == there)
        .where(here == func.any(ids), readable_by(caller, Memory))
        for direction, here, there in (
            ("out", MemoryLink.from_id, MemoryLink.to_id), ("in", MemoryLink.to_id, MemoryLink.from_id),
        )
    ]  # fmt: skip
    every = union_all(*parts).subquery("links")
    return select(every).order_by(every.c.created_at, every.c.rel, every.c.id).limit(MAX_LINKS)


async def trail(tx: Tx, caller: Caller, ids: Sequence[UUID]) -> list[tuple[UUID, str, UUID]]:
    """The links among these memories, which the caller has read, in a fixed order."""
    return await _TRAIL.rows(tx, {"user": caller.user_id, "ids": array_of(ids)})
