"""Generations: the collections that exist, the model of each, and the one that searches use.

PostgreSQL stores them (`index_generations`), so that all replicas agree. The configured model is the target. If it
differs from the model in use, its collection is filled beside the old one, and takes over when it is complete.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.index.models import GenerationState, IndexGeneration, Installation
from openmemory.index.tokens import VectorKey

_LOCK = text("SELECT pg_advisory_xact_lock(1869443436)")


@dataclass(frozen=True, slots=True)
class Generation:
    """One collection. `embedder` contains the settings to use its model, without secrets."""

    collection: str
    model: str
    dimension: int
    embedder: dict[str, Any]
    state: GenerationState
    created_at: datetime
    activated_at: datetime | None
    retired_at: datetime | None


_COLUMNS = [IndexGeneration.__table__.columns[field.name] for field in fields(Generation)]
_GENERATIONS = select(*_COLUMNS)


async def everyone(tx: Tx) -> list[Generation]:
    """All generations, the newest first."""
    rows = await tx.execute(_GENERATIONS.order_by(IndexGeneration.created_at.desc()))
    return [_generation(row) for row in rows]


async def want(tx: Tx, collection: str, model: str, dimension: int, embedder: dict[str, Any]) -> Generation:
    """Registers the collection that should be used, and returns it.

    If none is active, it becomes active at once. Otherwise it is built, for the first time or again. A collection that
    was being built for another model retires.
    """
    await tx.execute(_LOCK)
    active = await tx.scalar(select(IndexGeneration.collection).where(_is(GenerationState.ACTIVE)))
    others = update(IndexGeneration).where(_is(GenerationState.BUILDING), IndexGeneration.collection != collection)
    await tx.execute(others.values(state=GenerationState.RETIRED, retired_at=func.now()))
    state = GenerationState.ACTIVE if active in (None, collection) else GenerationState.BUILDING
    values = {"model": model, "dimension": dimension, "embedder": embedder, "state": state, "retired_at": None}
    row = insert(IndexGeneration).values(collection=collection, **values)
    if state is GenerationState.ACTIVE:
        row = row.values(activated_at=func.now())
    row = row.on_conflict_do_update(index_elements=["collection"], set_=values)
    return _generation((await tx.execute(row.returning(*_COLUMNS))).one())


async def own_name(tx: Tx) -> str | None:
    """The name that this installation took because the default one is another's."""
    name: str | None = await tx.scalar(select(Installation.collection))
    return name


async def leave(tx: Tx, collection: str, alias: str) -> str | None:
    """Forgets a collection that belongs to another installation, and takes another name for this one; returns it.

    Returns None if the collection has that name already.
    """
    await tx.execute(_LOCK)
    id_ = (await tx.scalars(select(Installation.id))).one()
    own = f"{alias[:50]}-{id_.hex[:8]}"
    if collection.startswith(f"{own}__"):
        return None
    await tx.execute(delete(IndexGeneration).where(IndexGeneration.collection == collection))
    await tx.execute(update(Installation).values(collection=own))
    return own


async def activate(tx: Tx, collection: str) -> bool:
    """Makes a complete collection active. Returns False if it is no longer being built."""
    await tx.execute(_LOCK)
    one = IndexGeneration.collection == collection
    if await tx.scalar(select(IndexGeneration.state).where(one)) != GenerationState.BUILDING:
        return False
    old = update(IndexGeneration).where(_is(GenerationState.ACTIVE))
    await tx.execute(old.values(state=GenerationState.RETIRED, retired_at=func.now()))
    new = update(IndexGeneration).where(one)
    await tx.execute(new.values(state=GenerationState.ACTIVE, activated_at=func.now(), retired_at=None))
    return True


async def expired(tx: Tx, keep: float) -> list[Generation]:
    """The generations that retired more than `keep` seconds ago."""
    over = IndexGeneration.retired_at <= func.now() - func.make_interval(0, 0, 0, 0, 0, 0, keep)
    rows = await tx.execute(_GENERATIONS.where(_is(GenerationState.RETIRED), over))
    return [_generation(row) for row in rows]


async def locked(tx: Tx, collection: str) -> bool:
    """Returns True if a collection is retired, and keeps it so until the transaction ends."""
    await tx.execute(_LOCK)
    state = select(IndexGeneration.state).where(IndexGeneration.collection == collection)
    return await tx.scalar(state) == GenerationState.RETIRED


async def forget(tx: Tx, collection: str) -> None:
    """Removes the record of a retired collection that was dropped."""
    one = IndexGeneration.collection == collection
    await tx.execute(delete(IndexGeneration).where(one, _is(GenerationState.RETIRED)))


async def forget_vectors(tx: Tx, retired: Generation, after: VectorKey, limit: int = 2_000) -> VectorKey | None:
    """Removes a page of vectors, after `after`, stored for the model of a retired generation and of no other.

    Returns the end of the page, or None if there is no more.
    """
    values = {"model": retired.model, "collection": retired.collection, "limit": limit}
    values |= {"kind": after.kind, "id": after.id, "of": after.model}
    row = (await tx.execute(_FORGET_VECTORS, values)).one_or_none()
    return None if row is None else VectorKey(*row)


_FORGET_VECTORS = text(load_sql(__name__, "forget_vectors"))


def _generation(row: Any) -> Generation:
    return Generation(**{**row._mapping, "state": GenerationState(row.state)})


def _is(state: GenerationState) -> Any:
    return IndexGeneration.state == state
