"""Soft-deletes, restores and erases sources with their passages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, case, delete, func, null, or_, select, update

from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.memories.state import State
from openmemory.sources import passages
from openmemory.sources.models import Passage, PassageKind, Source


class ChangedSources(NamedTuple):
    """The ids of the sources and passages that changed."""

    sources: Sequence[UUID]
    passages: Sequence[UUID]


async def move(tx: Tx, caller: Caller, which: ColumnElement[bool], target: State) -> ChangedSources:
    """Delete the passages of these sources, or restore those that were deleted."""
    deletes = target is State.DELETED
    before = State.ACTIVE if deletes else State.DELETED
    sources = (await tx.scalars(select(Source.id).where(which).with_for_update(), caller.parameters)).all()
    pieces = update(Passage).where(Passage.source_id.in_(sources), Passage.state == before)
    pieces = pieces.values(state=target, revision=Passage.revision + 1)
    if not deletes:  # what has expired would go again at once; a document comes back to stay
        over = or_(Passage.expires_at <= func.now(), Passage.kind == PassageKind.DOCUMENT.value)
        pieces = pieces.values(expires_at=case((over, null()), else_=Passage.expires_at))
    changed = (await tx.scalars(pieces.returning(Passage.id))).all()
    moved = update(Source).where(Source.id.in_(sources))
    moved = moved.values(
        state=target, updated_at=func.now(), deleted_at=func.now() if deletes else None, expires_at=None
    )
    if changed:
        await tx.execute(moved)
    await outbox.add_entries(tx, ItemKind.PASSAGE, changed)
    return ChangedSources(sources, changed)


async def end_expired(tx: Tx, sources: Collection[UUID]) -> Sequence[UUID]:
    """Delete those of these sources that have expired. Returns their ids. Their passages are left to the caller."""
    ended = update(Source).where(Source.id.in_(sources), Source.expires_at <= func.now())
    ended = ended.values(state=State.DELETED, deleted_at=func.now(), expires_at=None)
    return (await tx.scalars(ended.returning(Source.id))).all()


async def erase(tx: Tx, caller: Caller, which: ColumnElement[bool]) -> ChangedSources:
    """Permanently remove these sources with their passages, vectors and originals."""
    sources = (await tx.scalars(select(Source.id).where(which).with_for_update(), caller.parameters)).all()
    erased = await passages.erase(tx, Passage.source_id.in_(sources))
    await tx.execute(delete(Source).where(Source.id.in_(sources)))
    return ChangedSources(sources, erased)
