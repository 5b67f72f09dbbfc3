"""Finds memories by what they are related to: links, threads, shared tags and entities, and the rules of a project.

Every statement selects only what the caller may read, so that nothing hidden takes a place or names a relation.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    Boolean,
    DateTime,
    Integer,
    LargeBinary,
    Text,
    Uuid,
    and_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    select,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from openmemory.access.readable import readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.index.models import Embedding
from openmemory.memories import models
from openmemory.memories.intake import STATE
from openmemory.memories.models import HAS_METADATA, IS_ACTIVE, Memory
from openmemory.memories.schemas import MemoryRecord
from openmemory.projects.models import MemoryLink

MAX_LINKS = 60
"""The number of links that are followed from the memories of a pack."""

STANDING = 10
"""The number of preferences and rules of a project that are candidates of every pack: the newest."""

STEPS = 2
"""The number of memories of a thread that are looked at on either side of one."""

MAX_RELATED, NAMES, LOOKED_AT = 12, 10, 1_000
"""The number of memories that share tags or entities with one, the names that count, and the memories that are looked
at. Names that very many memories have say little."""

_IDS: Any = ARRAY(Uuid())
_IS_STANDING: Any = literal_column(f"({models.STANDING})")


class Related(NamedTuple):
    """The links of some memories, and the stored vectors of those that have one."""

    links: list[tuple[UUID, str, UUID]]
    vectors: dict[UUID, bytes]


async def related(tx: Tx, caller: Caller, ids: Sequence[UUID], model: str, *, vectors: bool) -> Related:
    """The links of memories that the caller has read, and the vectors of their present texts. The links are those whose
    other end the caller may read, in the order of the ids."""
    values = {**caller.parameters, "ids": list(ids), "model": model, "vectors": vectors, "most": MAX_LINKS}
    rows = await _select_related(caller.owner, caller.default).rows(tx, values)
    links = dict.fromkeys((from_id, rel, to_id) for from_id, rel, to_id, _ in rows if to_id is not None)
    return Related(list(links), {id_: vector for id_, _, to_id, vector in rows if to_id is None})


@cache
def _select_related(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    ids: Any = bindparam("ids", type_=_IDS)
    parts = [
        select(
            MemoryLink.from_id, MemoryLink.rel, MemoryLink.to_id,
            func.array_position(ids, here).label("place"), MemoryLink.created_at.label("at"),
        )
        .join(Memory, Memory.id == there)
        .where(here == func.any(ids), readable_by(caller, Memory), Memory.kind != literal_column(f"'{STATE}'"))
        for here, there in ((MemoryLink.from_id, MemoryLink.to_id), (MemoryLink.to_id, MemoryLink.from_id))
    ]  # fmt: skip
    every = union_all(*parts).subquery("every")
    none: Any = literal_column("NULL")
    linked = (
        select(every.c.from_id, every.c.rel, every.c.to_id, cast(none, LargeBinary).label("vector"))
        .order_by(every.c.place, every.c.at, every.c.from_id, every.c.rel, every.c.to_id)
        .limit(bindparam("most", type_=Integer))
        .subquery("linked")
    )
    stored = (
        select(Embedding.id, none, none, Embedding.vector)
        .join(Memory, and_(Memory.id == Embedding.id, Memory.hash == Embedding.text_hash))
        .where(
            Embedding.kind == literal_column("'memory'"),
            Embedding.model == bindparam("model", type_=Text),
            Embedding.id == func.any(ids),
            bindparam("vectors", type_=Boolean()),
        )
    )
    return CompiledStatement(union_all(select(linked), stored), plain=True, binary=True)


async def standing(tx: Tx, caller: Caller, namespaces: Sequence[str]) -> list[UUID]:
    """The newest preferences, rules and standing decisions in these namespaces that the caller may read."""
    values = {**caller.parameters, "namespaces": list(namespaces), "most": STANDING}
    return [id_ for id_, _ in await _standing(caller.owner, caller.default).rows(tx, values)]


@cache
def _standing(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    spaces = (
        func.unnest(bindparam("namespaces", type_=ARRAY(Text)))
        .table_valued(column("name", Text), name="spaces")
        .render_derived()
    )
    newest = (
        select(Memory.id, Memory.created_at)
        .where(
            Memory.namespace == spaces.c.name,
            _IS_STANDING,
            IS_ACTIVE,
            readable_by(caller, Memory),
        )
        .order_by(Memory.created_at.desc(), Memory.id)
        .limit(bindparam("most", type_=Integer))
        .correlate(spaces)
        .lateral("newest")
    )
    query = (
        select(newest.c.id, newest.c.created_at)
        .select_from(spaces.join(newest, literal_column("true")))
        .order_by(newest.c.created_at.desc(), newest.c.id)
        .limit(bindparam("most", type_=Integer))
    )
    return CompiledStatement(query, plain=True)


def names_of(metadata: Mapping[str, Any]) -> dict[str, list[str]]:
    """The tags and entities of a memory, the first of them."""
    fields = {field: metadata.get(field) for field in ("tags", "entities")}
    return {
        field: [name for name in names if isinstance(name, str)][:NAMES]
        for field, names in fields.items()
        if isinstance(names, list)
    }


async def around(tx: Tx, caller: Caller, memory: MemoryRecord) -> dict[UUID, str]:
    """The memories beside one in its thread, nearest first, and those that share its tags or entities, most names
    first. Each with what relates it."""
    reasons = dict[UUID, str]()
    place = {"id": memory.id, "at": memory.created_at, "namespace": memory.namespace}
    if memory.thread_id is not None:
        values = {**caller.parameters, **place, "thread": memory.thread_id, "most": STEPS}
        rows = await _beside(caller.owner, caller.default).rows(tx, values)
        reasons |= {id_: "in its thread" for id_, _ in rows}
    names = names_of(memory.metadata_)
    if some := [json.dumps({field: [name]}) for field, each in names.items() for name in each]:
        values = {**caller.parameters, **place, "names": some, "most": MAX_RELATED, "looked_at": LOOKED_AT}
        for id_, metadata, _ in await _same_names(caller.owner, caller.default).rows(tx, values):
            theirs = names_of(metadata)
            shared = [name for field, each in names.items() for name in each if name in theirs.get(field, ())]
            reasons.setdefault(id_, f"shares {', '.join(shared)}")
    return reasons


@cache
def _beside(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    here = tuple_(bindparam("at", type_=DateTime(timezone=True)), bindparam("id", type_=Uuid()))
    there = tuple_(Memory.created_at, Memory.id)
    sides = []
    for backwards in (True, False):
        order: list[Any] = [Memory.created_at, Memory.id]
        order = [key.desc() for key in order] if backwards else order
        step = func.row_number().over(order_by=order).label("step")
        side = (
            select(Memory.id, step)
            .where(
                Memory.user_id == bindparam("caller_user_id"),
                Memory.thread_id == bindparam("thread", type_=Text),
                Memory.namespace == bindparam("namespace", type_=Text),
                there < here if backwards else there > here,
                readable_by(caller, Memory),
            )
            .order_by(*order)
            .limit(bindparam("most", type_=Integer))
        )
        sides.append(select(*side.subquery().c))
    every = union_all(*sides).subquery("every")
    return CompiledStatement(select(every.c.id, every.c.step).order_by(every.c.step, every.c.id), plain=True)


@cache
def _same_names(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    names: Any = cast(bindparam("names", type_=ARRAY(Text)), ARRAY(JSONB))
    some = (
        select(Memory.id)
        .where(
            Memory.user_id == bindparam("caller_user_id"),
            Memory.namespace == bindparam("namespace", type_=Text),
            Memory.id != bindparam("id", type_=Uuid()),
            Memory.metadata_.op("@>")(func.any(names)),
            IS_ACTIVE,
            HAS_METADATA,
        )
        .limit(bindparam("looked_at", type_=Integer))
        .cte("some")
        .prefix_with("MATERIALIZED")
    )
    name = func.unnest(names).table_valued(column("name", JSONB), name="name").render_derived()
    shared = (
        select(func.count())
        .select_from(name)
        .where(Memory.metadata_.op("@>")(name.c.name))
        .correlate(Memory)
        .scalar_subquery()
    )
    query = (
        select(Memory.id, Memory.metadata_, shared.label("shared"))
        .join(some, some.c.id == Memory.id)
        .where(readable_by(caller, Memory))
        .order_by(shared.desc(), Memory.created_at.desc(), Memory.id)
        .limit(bindparam("most", type_=Integer))
    )
    return CompiledStatement(query, plain=True)
