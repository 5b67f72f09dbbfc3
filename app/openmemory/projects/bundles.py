"""The use cases of bundles: a project's memories, links and state, to share with others through a repository."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import func, insert, select

from openmemory.access.apps import refuse_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.locks import lock
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, repository, validation
from openmemory.memories.intake import KEYED, STATE, Intake
from openmemory.memories.models import HAS_METADATA, IS_ACTIVE, Memory
from openmemory.memories.schemas import CheckedMemory, Event, MemoryUpdate
from openmemory.memories.state import State
from openmemory.projects import links, singletons
from openmemory.projects.bundle_format import (
    SCHEMA,
    SHARED,
    Bundle,
    BundleImported,
    BundleLink,
    BundleManifest,
    packed,
    unpacked,
)
from openmemory.projects.models import MemoryLink
from openmemory.projects.states import as_memory, parsed

MAX_MEMORIES = 5_000
"""The number of memories that a bundle may have."""


class _Stored(NamedTuple):
    """A memory that an earlier import brought, or that the bundle was made of."""

    id: UUID
    content: str
    metadata: dict[str, Any]
    own: bool


class _Checked(NamedTuple):
    """A bundle whose fields were checked. `source`: the project that it comes from."""

    source: str
    memories: dict[str, CheckedMemory]
    links: Sequence[BundleLink]
    state: CheckedMemory | None


class Bundles:
    """Exports and imports what a project shares."""

    def __init__(
        self, database: Database, delivery: OutboxDelivery, *, intake: Intake, limits: LimitSettings, rates: RateLimiter
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._rates = rates

    async def export(self, caller: Caller, namespace: str, version: str) -> Bundle:
        """All active memories of a project that the caller may read, the links among them, and its state.

        The same rows give the same bundle.

        Raises:
            Invalid: the namespace is invalid, or has more memories than a bundle may have.
            NotFound: there is nothing that the caller may read.
        """
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        await self._rates.search(caller)
        which = (Memory.namespace == namespace) & readable_by(caller, Memory)
        query = repository.whole().where(which).order_by(Memory.created_at, Memory.id).limit(MAX_MEMORIES + 2)
        async with self._database.transaction() as tx:
            records = [repository.record(row) for row in await tx.execute(query, caller.parameters)]
            if not records:
                raise NotFound("Nothing of this project can be shared.", code="project_not_found")
            if len(records) > MAX_MEMORIES + 1:
                raise Invalid("namespace", f"has more than {MAX_MEMORIES:,} memories; use an archive (`export`)")
            states = [one for one in records if one.kind == STATE]
            memories = [one for one in records if one.kind != STATE]
            trail = await links.trail(tx, caller, [one.id for one in memories])
            await access_log.record(tx, caller, AccessType.EXPORT, [one.id for one in records], {"operation": "share"})
            await audit_log.record(tx, caller, AuditAction.PROJECT_SHARE, detail={"memories": len(memories)})
        newest = max(states, key=lambda one: one.updated_at, default=None)
        changed = max(one.updated_at for one in records)
        return Bundle(
            BundleManifest(_tag(caller, namespace), SCHEMA, namespace, changed, version, len(memories)),
            [packed(one) for one in memories],
            [BundleLink(str(from_id), rel, str(to_id)) for from_id, rel, to_id in trail],
            None if newest is None else parsed(newest.content)[0],
        )

    async def import_(
        self, caller: Caller, namespace: str, bundle: Bundle, *, replace_all: bool = False
    ) -> BundleImported:
        """Add the memories of a bundle, or change those that an earlier import of the same project brought.

        `replace_all`: also delete those of earlier imports that the bundle does not have any more. Nothing else is
        changed or deleted. A second import of the same bundle changes nothing.

        Raises:
            ConflictError: a changed memory would repeat another one.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
            Invalid: a field of the bundle cannot be stored. Nothing of it was.
        """
        namespace = validation.name(namespace, "namespace", self._limits)
        source = validation.name(bundle.manifest.source_repo_id, "manifest.source_repo_id", self._limits)
        if bundle.manifest.schema_version != SCHEMA:
            raise Invalid("manifest.schema_version", f"must be {SCHEMA}")
        if len(bundle.memories) > MAX_MEMORIES:
            raise Invalid("memories", f"must be at most {MAX_MEMORIES:,}")
        caller.may_write(namespace)
        caller.may_read()
        state = self._state(bundle, namespace, source)
        checked = _Checked(source, self._check_memories(bundle, namespace, source), bundle.links, state)
        await self._rates.save(caller, max(1, len(checked.memories)))
        result = await self._import(caller, namespace, checked, replace_all=replace_all)
        self._delivery.wake()
        return result

    def _check_memories(self, bundle: Bundle, namespace: str, source: str) -> dict[str, CheckedMemory]:
        """The memories as they will be stored, by their ids in the bundle."""
        memories = dict[str, CheckedMemory]()
        for number, one in enumerate(bundle.memories):
            if one.expires_at is not None and validation.moment(one.expires_at, "expires_at") <= datetime.now(UTC):
                continue
            try:
                new = self._intake.created(unpacked(one, namespace, source), field="title", own=one.kind == KEYED)
                if new.kind == KEYED and not (new.key and "/" in new.key and new.text.startswith(f"{new.key}: ")):
                    raise Invalid("key", "must be topic/key, with which the title of a value begins")
                if one.source_id in memories:
                    raise Invalid("source_id", "is in the bundle twice")
            except Invalid as error:
                error.message = f"memories[{number}].{error.message}"
                raise
            memories[one.source_id] = new
        return memories

    def _state(self, bundle: Bundle, namespace: str, source: str) -> CheckedMemory | None:
        if bundle.state is None:
            return None
        state = self._intake.json_object(bundle.state, "state")
        metadata = {"reason": "It was shared.", SHARED: {"from": source, "id": "state"}}
        return as_memory(state, namespace, metadata, self._intake, self._limits)

    @retry_on_conflict
    async def _import(self, caller: Caller, namespace: str, bundle: _Checked, *, replace_all: bool) -> BundleImported:
        news = bundle.memories
        outcomes = Counter[str]()
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "import memories")
            await lock(tx, f"bundles {caller.user_id} {namespace}")
            there = await _there(tx, caller, namespace, bundle.source, list(news))
            ids = {key: stored.id for key, stored in there.items()}
            fresh = dict[str, CheckedMemory]()
            for key, new in news.items():
                if key in there:
                    outcomes[await self._update_stored(tx, caller, there[key], new)] += 1
                elif new.kind == KEYED:
                    ids[key], what = await self._value(tx, caller, new)
                    outcomes[what] += 1
                else:
                    fresh[key] = new
            added = await changes.add(tx, caller, list(fresh.values()), {}) if fresh else []
            for key, one in zip(fresh, added, strict=True):
                ids[key] = one.id
                outcomes["imported" if one.event is Event.ADD else "unchanged"] += 1
            if replace_all:
                gone = [stored.id for key, stored in there.items() if key not in news and not stored.own]
                outcomes["deleted"] = len(
                    await changes.change_state(tx, caller, Memory.id == func.any(gone), State.DELETED)
                )
            linked = await self._add_links(tx, caller, bundle.links, {key: ids[key] for key in news})
            saved = await self._save_state(tx, caller, namespace, bundle.state, replace_all=replace_all)
            await audit_log.record(tx, caller, AuditAction.PROJECT_IMPORT, detail=dict(outcomes))
        counts = {name: outcomes[name] for name in ("imported", "updated", "unchanged", "deleted", "kept")}
        return BundleImported(namespace, bundle.source, **counts, links=linked, state=saved)

    async def _update_stored(self, tx: Tx, caller: Caller, stored: _Stored, new: CheckedMemory) -> str:
        if stored.own:
            return "unchanged" if stored.content == new.text else "kept"
        if (stored.content, stored.metadata) == (new.text, new.metadata):
            return "unchanged"
        change = MemoryUpdate(text=new.text, metadata=new.metadata)
        await changes.update_text(tx, caller, Memory.id == stored.id, change, self._intake.labels)
        return "updated"

    async def _value(self, tx: Tx, caller: Caller, new: CheckedMemory) -> tuple[UUID, str]:
        """Sets a value whose key the bundle has not brought before. One that the project has itself stays."""
        present = await singletons.present(tx, caller, new.namespace, KEYED, new.key)
        if present is not None:
            return present.id, "kept"
        result = await singletons.save(tx, caller, None, new, self._intake.labels)
        return result.id, "imported"

    async def _add_links(self, tx: Tx, caller: Caller, shared: Sequence[BundleLink], ids: dict[str, UUID]) -> int:
        """Adds the links of the bundle, except those that would close a cycle. Returns how many are new."""
        count = 0
        await links.no_other(tx, caller)
        for link in shared:
            start, end = ids.get(link.from_id), ids.get(link.to_id)
            if start is None or end is None or start == end:
                continue
            rel = links.relation(link.rel, self._limits)
            ends = {"from_id": start, "rel": rel, "to_id": end}
            there = await tx.scalar(select(MemoryLink.rel).filter_by(**ends))
            if there is None and not await links.leads(tx, caller, end, rel, start):
                await tx.execute(insert(MemoryLink).values(user_id=caller.user_id, app_id=caller.app_id, **ends))
                count += 1
        return count

    async def _save_state(
        self, tx: Tx, caller: Caller, namespace: str, state: CheckedMemory | None, *, replace_all: bool
    ) -> str:
        """Saves the state where there is none. With `replace_all` also where it is that of an earlier import."""
        if state is None:
            return "none"
        present = await singletons.present(tx, caller, namespace, STATE, None)
        if present is not None:
            row = (
                await tx.execute(
                    select(Memory.content, Memory.metadata_.label("metadata_")).where(Memory.id == present.id)
                )
            ).one()
            if row.content == state.text:
                return "unchanged"
            if not replace_all or row.metadata_.get(SHARED) != state.metadata[SHARED]:
                return "kept"
        await singletons.save(tx, caller, present, state, self._intake.labels)
        return "saved"


async def _there(tx: Tx, caller: Caller, namespace: str, source: str, keys: Sequence[str]) -> dict[str, _Stored]:
    """The memories that earlier imports from this source brought, by their ids in its bundles.

    Where the bundle comes from this very project, also the memories that it was made of.
    """
    columns = select(Memory.id, Memory.content, Memory.metadata_.label("metadata_"))
    within = (Memory.user_id == caller.user_id) & (Memory.namespace == namespace) & IS_ACTIVE
    within &= readable_by(caller, Memory) & (Memory.kind != STATE)
    query = columns.where(within, HAS_METADATA, Memory.metadata_.contains({SHARED: {"from": source}}))
    memories = dict[str, _Stored]()
    for row in await tx.execute(query.order_by(Memory.created_at, Memory.id), caller.parameters):
        key = row.metadata_[SHARED].get("id")
        if isinstance(key, str):
            memories.setdefault(key, _Stored(row.id, row.content, row.metadata_, own=False))
    if source == _tag(caller, namespace):
        ids = [UUID(key) for key in keys if _is_id(key)]
        for row in await tx.execute(columns.where(within, Memory.id == func.any(ids)), caller.parameters):
            memories[str(row.id)] = _Stored(row.id, row.content, row.metadata_, own=True)
    return memories


def _tag(caller: Caller, namespace: str) -> str:
    """The name of a project in its bundles, which does not reveal the user."""
    return "om_" + sha256(f"{caller.user_id}/{namespace}".encode()).hexdigest()[:16]


def _is_id(key: str) -> bool:
    try:
        return str(UUID(key)) == key
    except ValueError:
        return False
