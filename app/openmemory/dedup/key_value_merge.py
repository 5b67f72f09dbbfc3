"""Merges new key-value facts into the memory that has the same keys.

Transactions that add key-value facts to the same app, namespace and kind are serialized, so that each sees the result
of the one before. Only memories that the caller may read, and therefore change, are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, String, Text, and_, bindparam, column, func, literal_column, select
from sqlalchemy import Uuid as SqlUuid

from openmemory.access.models import App
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.config.sections import DedupSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.database.locks import lock
from openmemory.dedup.key_values import FACTS, Pairs, merged, parsed
from openmemory.dedup.rewriting import complete, rewritable
from openmemory.dedup.scope import SharedScope
from openmemory.identity.caller import Caller, Default
from openmemory.identity.principal import Scope
from openmemory.memories import changes
from openmemory.memories.deduplication import Dedup
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle.superseding import LATE
from openmemory.memories.models import LOOKS_LIKE_KEY_VALUES, Memory, MemoryRevision
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.memories.schemas import CheckedMemory, Event, MemoryAdded, PairChange, PairSource

CANDIDATES = 20
"""The maximum number of memories that are compared: those with most shared keys, then the newest."""

REVISIONS = 100
"""The maximum number of revisions that are searched for the origin of a value."""

LOOKS = 3
"""The maximum number of searches if the memory that was found has changed before it is locked."""

MERGED = "Merged into the memory that has such keys (dedup.key_values)."
ALREADY_STORED = "Not stored: this memory holds these pairs already (dedup.key_values)."
APART = "Stored apart: it could not be merged with the memory that has such keys (dedup.key_values)."


class KeyValueMerge:
    """Applies the policy `dedup.key_values` to texts with key-value facts. `scope`: the memories that they may be
    merged into, if not only those of the same app and kind."""

    def __init__(self, settings: DedupSettings, intake: Intake, scope: SharedScope | None = None) -> None:
        self._merges = settings.key_values == "merge"
        self._intake = intake
        self._scope = scope

    def concerns(self, caller: Caller, new: CheckedMemory) -> bool:
        """Returns True if a text consists of key-value facts and may be merged.

        Excluded are texts that look like prompt injection, are valid only for a period or describe the past. A caller
        without read access is excluded too, because the answer shows the old values.
        """
        bounded = new.is_bounded if self._scope is None else not self._scope.admits(new)
        if not self._merges or new.labels or bounded:
            return False
        past = new.created_at is not None and new.created_at < datetime.now(UTC) - LATE
        return not past and Scope.READ in caller.principal.scopes and parsed(new.text) is not None

    async def prepare(self, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> Dedup:
        """Returns the merge, to be run in the transaction that stores the text."""
        return partial(self._add, caller=caller, new=new, apps=apps)

    async def _add(self, tx: Tx, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> MemoryAdded | None:
        """Merge a text that `concerns` accepts into the memory with most shared keys, or the newest of several.

        Returns None if there is no such memory or an exact duplicate. The text is then added as usual.
        """
        app_id, scope = apps[new.app or caller.app], self._scope
        await lock(tx, f"pairs {app_id} {new.kind} {new.namespace}" if scope is None else f"pairs {caller.user_id}")
        for _ in range(LOOKS):
            best = await _best(tx, caller, new, app_id, scope)
            if best is None or (scope is None and best.hash == changes.text_hash(new.text)):
                return None
            row = await _lock(tx, caller, best.id, values(caller, new, app_id, scope), scope)
            if row is not None and _count_shared(row, new):
                return await self._merge(tx, caller, new, row, apps)
        return await _apart(tx, caller, new, apps)

    async def _merge(self, tx: Tx, caller: Caller, new: CheckedMemory, row: Any, apps: dict[str, UUID]) -> MemoryAdded:
        newer = parsed(new.text) or {}
        union = merged(parsed(row.content) or {}, newer)
        if self._scope is None and not (union.added or union.changed or _brings_more(row, new)):
            await access_log.record(tx, caller, AccessType.SEARCH, [row.id], {"part": "pairs"})
            return MemoryAdded(id=row.id, memory=row.content, event=Event.NONE, note=ALREADY_STORED)
        joint = replace(new, text=union.text if union.added or union.changed else row.content)
        if FACTS in new.metadata:
            joint = replace(joint, metadata={**new.metadata, FACTS: parsed(joint.text)})
        revisions = await _revisions(tx, row.id) if union.changed else []
        source = PairSource(app=new.app or caller.app, at=row.updated_at)
        changed = [
            PairChange(key=key, old=old, new=newer[key], was=_source(key, old, revisions) or source)
            for key, old in union.changed.items()
        ]
        labels = self._intake.labels(joint.text, {**row.metadata, **new.metadata})
        operation = {"operation": "pairs"}
        if labels or parsed(joint.text) is None or not await complete(
            tx, caller, row, joint, self._intake, logged=operation, replaces=self._scope is not None
        ):  # fmt: skip
            return await _apart(tx, caller, new, apps)
        note = f"{MERGED} added: {', '.join(union.added)}." if union.added else MERGED
        return MemoryAdded(
            id=row.id, memory=joint.text, event=Event.UPDATE, previous_memory=row.content, note=note, changed=changed
        )


def _count_shared(row: Any, new: CheckedMemory) -> int:
    """The number of keys that a memory shares with a new text. Neither need be of this form any more."""
    return len((parsed(row.content) or {}).keys() & (parsed(new.text) or {}).keys())


def _brings_more(row: Any, new: CheckedMemory) -> bool:
    """Returns True if the text comes with metadata or categories that the memory does not have."""
    return {**row.metadata, **new.metadata} != row.metadata or not set(new.categories) <= set(row.categories)


async def _apart(tx: Tx, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> MemoryAdded:
    """Store a text unmerged: the merged text would be too large, look like prompt injection, or be an exact duplicate.

    Nothing is lost this way, and a search reports that the two memories conflict.
    """
    [added] = await changes.add(tx, caller, [new], apps)
    return added.model_copy(update={"note": APART}) if added.event is Event.ADD else added


async def _best(tx: Tx, caller: Caller, new: CheckedMemory, app_id: UUID, scope: SharedScope | None) -> Any:
    """The id, text and hash of the memory to merge with, or of an exact duplicate."""
    rows = await candidates(caller.owner, caller.default, scope).rows(tx, values(caller, new, app_id, scope))
    if rows and rows[0].hash == changes.text_hash(new.text):
        return rows[0]
    best = max(rows, key=lambda row: _count_shared(row, new), default=None)
    return best if best is not None and _count_shared(best, new) else None


async def _lock(tx: Tx, caller: Caller, memory_id: UUID, bound: dict[str, Any], scope: SharedScope | None) -> Any:
    """Locks a memory that was found and returns its current state. None if it can no longer be merged."""
    query = (
        select(
            Memory.id,
            Memory.content,
            Memory.metadata_.label("metadata"),
            Memory.updated_at,
            CATEGORY_NAMES.label("categories"),
        )
        .where(Memory.id == memory_id, _mergeable(caller, scope))
        .with_for_update(of=Memory, key_share=True)
    )
    return (await tx.execute(query, bound)).one_or_none()


def values(caller: Caller, new: CheckedMemory, app_id: UUID, scope: SharedScope | None = None) -> dict[str, Any]:
    """The parameters that the statements bind."""
    parameters = caller.parameters | {"pairs_text": new.text, "pairs_hash": changes.text_hash(new.text)}
    if scope is not None:
        return parameters | scope.values(new)
    names = {"pairs_namespace": new.namespace, "pairs_kind": new.kind, "pairs_name": new.key}
    return parameters | names | {"pairs_app": app_id}


def _mergeable(caller: Caller, scope: SharedScope | None) -> ColumnElement[bool]:
    """The memories that key-value facts may be merged into. Execute with `values`."""
    if scope is not None:
        return scope.rewritable(caller)
    return and_(
        rewritable(caller, *(bindparam(f"pairs_{name}", type_=String) for name in ("namespace", "kind", "name"))),
        Memory.app_id == bindparam("pairs_app", type_=SqlUuid),
    )


@cache
def candidates(owner: bool, default: Default, scope: SharedScope | None = None) -> CompiledStatement:
    """The memories that share keys with a text: first an exact duplicate, then by number of shared keys, then the
    newest. Binds `values`."""
    caller = Caller.anyone(owner=owner, default=default)
    keys = func.key_value_keys(Memory.content)
    new_keys = select(func.key_value_keys(bindparam("pairs_text", type_=Text))).scalar_subquery()
    pairs = func.unnest(keys).table_valued(column("key", Text), name="held").render_derived()
    common = func.array_position(new_keys, pairs.c.key).is_not(None)
    shared = select(func.count()).select_from(pairs).where(common).correlate(Memory).scalar_subquery()
    query = (
        select(Memory.id, Memory.content, Memory.hash)
        .where(_mergeable(caller, scope), keys.bool_op("&&")(new_keys), literal_column(f"({LOOKS_LIKE_KEY_VALUES})"))
        .order_by(
            (Memory.hash == bindparam("pairs_hash", type_=String)).desc(),
            shared.desc(),
            Memory.updated_at.desc(),
            Memory.id,
        )
        .limit(literal_column(str(CANDIDATES)))
    )
    return CompiledStatement(query)


async def _revisions(tx: Tx, memory_id: UUID) -> list[tuple[Pairs, Any]]:
    """The last revisions of a memory, newest first, with their facts."""
    query = (
        select(MemoryRevision.new_text, MemoryRevision.changed_at, App.name)
        .outerjoin(App, App.id == MemoryRevision.app_id)
        .where(MemoryRevision.memory_id == memory_id)
        .order_by(MemoryRevision.revision.desc())
        .limit(REVISIONS)
    )
    return [(parsed(row.new_text) or {}, row) for row in await tx.execute(query)]


def _source(key: str, old: str, revisions: Sequence[tuple[Pairs, Any]]) -> PairSource | None:
    """The app and time of the revision that set an old value, searched from the newest on. None if none of them did."""
    first = None
    for pairs, row in revisions:
        if pairs.get(key) != old:
            break
        first = row
    else:
        if len(revisions) == REVISIONS:
            return None
    return PairSource(app=first.name, at=first.changed_at) if first is not None and first.name else None
