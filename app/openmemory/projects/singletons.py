"""Reads and writes memories of which a namespace has one at a time: its state, and the value under each key.

One at a time among those that a caller may read. What a rule hides from an app is neither replaced by it nor in its
way, because a refusal would reveal to the app that there is something. Who may read both gets that of the first app.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, bindparam, func, literal_column, or_, select, text

from openmemory.access.apps import refuse_unreadable
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.database.locks import lock
from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller, Default
from openmemory.memories import changes, repository
from openmemory.memories.changes import Flagging
from openmemory.memories.intake import KEYED, STATE
from openmemory.memories.models import IS_ACTIVE, Memory
from openmemory.memories.schemas import CheckedMemory, Event, MemoryRecord, MemoryUpdate
from openmemory.memories.state import State

_REPEATED = text(
    """
    SELECT id FROM (
        SELECT id, row_number() OVER (PARTITION BY kind, key, app_id ORDER BY updated_at DESC, id) AS place
        FROM memories
        WHERE user_id = :user AND namespace = :namespace AND state = 'active' AND kind IN ('state', 'keyed')
    ) AS same WHERE place > 1
    """
)


def _first_written(*among: Any) -> ColumnElement[Any]:
    """When the app of a memory was first, of the memories that are equal in these columns."""
    return func.min(Memory.created_at).over(partition_by=(*among, Memory.app_id))


_ORDER = _first_written(), Memory.updated_at.desc(), Memory.id
"""Of several memories of one key, the first counts: of the app that was first, the one that changed last."""


_ESCAPED = re.compile("%(25|2F)")
"""A part of a topic that looks like an escape."""
_CHARACTERS = {"%25": "%", "%2F": "/"}
_ESCAPE = re.compile("|".join(_CHARACTERS))


class SavedMemory(NamedTuple):
    """A stored memory, and what became of it."""

    id: UUID
    event: Event
    revision: int


class Present(NamedTuple):
    """The memory of this kind and key that there is."""

    id: UUID
    revision: int


def value_topic(topic: str) -> str:
    """A topic as the keys of memories begin with it. A slash in it becomes `%2F`, because the first slash ends it."""
    return _ESCAPED.sub(r"%25\1", topic).replace("/", "%2F")


def value_parts(key: str | None, content: str) -> tuple[str, str, str]:
    """The topic, the key and the value of a memory of the kind `keyed`."""
    topic, _, name = (key or "").partition("/")
    return _ESCAPE.sub(lambda match: _CHARACTERS[match[0]], topic), name, content.removeprefix(f"{key}: ")


def of_kind(kind: str) -> ColumnElement[bool]:
    """The active memories of a kind. Constants, so that every plan can use the partial index."""
    assert kind in (STATE, KEYED)
    return (Memory.kind == literal_column(f"'{kind}'")) & IS_ACTIVE


async def present(tx: Tx, caller: Caller, namespace: str, kind: str, key: str | None) -> Present | None:
    """The memory of this kind and key that the caller may read, locked until the transaction ends with all others of
    that key.

    There may be several, for example after an import. One counts, and the others are archived.
    """
    await lock(tx, f"{kind} {caller.user_id} {namespace} {key or ''}")
    which = [Memory.user_id == caller.user_id, Memory.namespace == namespace, of_kind(kind)]
    which += [Memory.key == key if key is not None else Memory.key.is_(None), readable_by(caller, Memory)]
    some = select(Memory.id, Memory.revision).where(*which).order_by(*_ORDER)
    rows = (await tx.execute(some, caller.parameters)).all()
    if not rows:
        return None
    one, *others = rows
    if others:
        older = Memory.id == func.any([row.id for row in others])
        await changes.change_state(tx, caller, older, State.ARCHIVED)
    return Present(one.id, one.revision)


async def read(tx: Tx, caller: Caller, kind: str, namespace: str, key: str | None = None) -> MemoryRecord | None:
    """The memory of this kind and key that counts among those that the caller may read. The access is logged."""
    logged = access_log.parameters(caller, AccessType.GET) | audit_log.parameters(caller, AuditAction.MEMORY_GET)
    values = {**caller.parameters, **logged, "namespace": namespace, "key": key}
    rows = await _counting(caller.owner, caller.default, kind).rows(tx, values)
    return repository.record(rows[0]) if rows else None


async def repeated(tx: Tx, user_id: UUID, namespace: str) -> list[UUID]:
    """The active states and values of a namespace of which the same app has another one, of the same key, that changed
    later. Those of several apps stand beside each other, because a rule may hide one from the other."""
    return list(await tx.scalars(_REPEATED, {"user": user_id, "namespace": namespace}))


async def clashes(tx: Tx, caller: Caller, namespaces: Sequence[str]) -> list[UUID]:
    """The states and values that count for the caller in one of these namespaces, but not among all of them: another
    one of the same key that counts in its own namespace changed later.

    Equal texts of one app do not clash.
    """
    of_kinds = or_(of_kind(STATE), of_kind(KEYED))
    columns = Memory.id, Memory.namespace, Memory.kind, Memory.key, Memory.app_id, Memory.hash, Memory.updated_at
    first = _first_written(Memory.namespace, Memory.kind, Memory.key).label("first")
    where = Memory.namespace == func.any(list(namespaces)), of_kinds, readable_by(caller, Memory)
    some = select(*columns, first).where(*where)
    each = some.subquery("each")
    order = each.c.first, each.c.updated_at.desc(), each.c.id
    ranked = func.row_number().over(partition_by=(each.c.namespace, each.c.kind, each.c.key), order_by=order)
    placed = select(each, ranked.label("place")).subquery("placed")
    across: dict[str, Any] = {
        "partition_by": (placed.c.kind, placed.c.key),
        "order_by": (placed.c.updated_at.desc(), placed.c.id),
    }
    newer = func.concat(func.lag(placed.c.app_id).over(**across), func.lag(placed.c.hash).over(**across))
    same = newer == func.concat(placed.c.app_id, placed.c.hash)
    number = func.row_number().over(**across)
    counting = select(placed.c.id, same.label("same"), number.label("number")).where(placed.c.place == 1)
    numbered = counting.subquery("found")
    return list(
        await tx.scalars(select(numbered.c.id).where(numbered.c.number > 1, ~numbered.c.same), caller.parameters)
    )


@cache
def _counting(owner: bool, default: Default, kind: str) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    key = Memory.key == bindparam("key") if kind == KEYED else Memory.key.is_(None)
    counting = (
        repository.whole()
        .where(of_kind(kind), Memory.namespace == bindparam("namespace"), key, readable_by(caller, Memory))
        .order_by(*_ORDER)
        .limit(literal_column("1"))
        .cte("counting")
        .prefix_with("MATERIALIZED")
    )
    nothing: Any = literal_column("'{}'::jsonb")
    logs = access_log.inserted(counting, nothing), audit_log.inserted(counting, if_none=False)
    return CompiledStatement(select(counting).add_cte(*logs))


async def save(tx: Tx, caller: Caller, there: Present | None, new: CheckedMemory, labels: Flagging) -> SavedMemory:
    """Add the memory, or make it the new text of the one that is `there`.

    Raises:
        ConflictError: the app has another active memory of exactly this text.
        Forbidden: a rule hides from the app what it would store.
    """
    if there is None:
        [added] = await changes.add(tx, caller, [new], {})
        await refuse_unreadable(tx, caller, Memory, added.id)
        if added.event is Event.NONE:
            raise ConflictError(
                "Another active memory of the same app and namespace says exactly this.",
                code="duplicate_memory",
                hint="Delete or archive it first.",
            )
        return SavedMemory(added.id, Event.ADD, 1)
    change = MemoryUpdate(text=new.text, metadata=new.metadata)
    await changes.update_text(tx, caller, Memory.id == there.id, change, labels)
    revision = await tx.scalar(select(Memory.revision).where(Memory.id == there.id))
    assert revision is not None
    return SavedMemory(there.id, Event.NONE if revision == there.revision else Event.UPDATE, revision)
