"""The use cases of memories. Each public method is one use case and runs in one transaction."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import func, select

from openmemory.access.apps import paused_message, refuse_if_paused, refuse_paused
from openmemory.access.directory import Directory
from openmemory.access.keys import ApiKeys
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import is_not_paused, readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AccessLogPage, AuditAction
from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import BatchRefused, Forbidden, Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import accesses, changes, erasure, idempotency, read_back, repository, stored_rows, validation
from openmemory.memories.analyze import AnalyzeAfterWrites
from openmemory.memories.deduplication import Dedup, DedupPolicy
from openmemory.memories.erasure import EraseSources
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle import restoring, transitions
from openmemory.memories.listing import pages, ranked
from openmemory.memories.listing.criteria import ListCriteria, parameters
from openmemory.memories.listing.pages import ListAccess
from openmemory.memories.models import Memory
from openmemory.memories.schemas import (
    Amendment,
    CheckedMemory,
    Event,
    History,
    MemoryAdded,
    MemoryCreate,
    MemoryQuery,
    MemoryRecord,
    MemoryRowAdded,
    MemoryUpdate,
    MemoryUpdated,
    OnError,
    Page,
)
from openmemory.memories.state import State
from openmemory.memories.state_machine import ALLOWED, refuse

MAX_PAGE_SIZE = 100
RELATED = 5
"""Related memories per page. OpenMemory's UI supports no other page size."""


class Memories:
    """Stores, reads, changes and deletes memories."""

    def __init__(
        self,
        database: Database,
        directory: Directory,
        delivery: OutboxDelivery,
        *,
        limits: LimitSettings,
        analyze_after_writes: AnalyzeAfterWrites,
        rates: RateLimiter,
        keys: ApiKeys,
        capture: CaptureSettings,
        erase_sources: EraseSources,
    ) -> None:
        self._database = database
        self._directory = directory
        self._delivery = delivery
        self._limits = limits
        self._analyze_after_writes = analyze_after_writes
        self._rates = rates
        self._keys = keys
        self._erase_sources = erase_sources
        self.intake = Intake(limits, capture)
        self.written: Counter[str] = Counter()
        """Memories written since the start, by operation: add, duplicate, update, supersede, erase or a state."""

    async def add(
        self,
        caller: Caller,
        new: MemoryCreate,
        *,
        policy: DedupPolicy | None = None,
        explicit: bool = False,
        once: IdempotentRequest | None = None,
    ) -> MemoryRowAdded:
        """Store one text verbatim. If the same app and namespace has an identical active memory, return that instead.

        `policy` may change or replace a memory with the same meaning. With `explicit`, a text is stored even if the app
        has just read it in another app's memory. A request that was already done with the same `once` gets its original
        answer. The answer shows an existing memory only if the caller may read it; otherwise it shows the text as it
        was sent.

        Raises:
            Invalid: a field is blank, too large or cannot be stored, or holds what `capture` refuses; or the key was
                used for another request.
            Forbidden: the app is paused.
        """
        [memory], apps = await self._check(caller, [new])
        # The times are set here, so that the row of a new memory needs no read.
        now = datetime.now(UTC)
        expires_at = memory.expires_at if memory.ttl_days is None else now + timedelta(days=memory.ttl_days)
        memory = replace(memory, created_at=memory.created_at or now, expires_at=expires_at, ttl_days=None)
        dedup = None if policy is None else await policy.prepare(caller, memory, apps)
        result, row = await self._store_one(caller, memory, apps, dedup, once, explicit=explicit)
        self._finish_add([result])
        return row

    async def add_many(self, caller: Caller, news: Sequence[MemoryCreate]) -> list[MemoryAdded]:
        """Store texts verbatim and in order, all or none.

        Only exact duplicates are detected, because an import must not lose anything.
        """
        memories, apps = await self._check(caller, news)
        return self._finish_add(await self._store(caller, memories, apps))

    async def add_batch(
        self, caller: Caller, items: Sequence[MemoryCreate | Invalid], *, on_error: OnError = "skip"
    ) -> list[MemoryAdded | Invalid]:
        """Store the valid texts in one transaction, like `add_many`.

        Returns the result of every item, in order, or the error that rejected it. An error among the items stands for
        an item that could not be parsed. Rights apply to the whole request: if the caller may not write one item, all
        items are rejected.

        Raises:
            BatchRefused: no item can be stored, or with `on_error="fail"` one of them cannot.
            Forbidden: an app is paused, or a namespace or an app is not the caller's to write in.
        """
        validation.count(items, "memories", self._limits.batch, "limits.batch")
        caller.may_write()
        # In a thread, because checking a large batch against the `capture` policies takes time.
        memories = await asyncio.to_thread(lambda: [self._or_refusal(item) for item in items])
        errors = {place: item for place, item in enumerate(memories) if isinstance(item, Invalid)}
        if errors and (on_error == "fail" or len(errors) == len(items)):
            raise BatchRefused.of("memories", errors, len(items))
        results = iter(await self.add_many(caller, [item for item in memories if not isinstance(item, Invalid)]))
        return [errors[place] if place in errors else next(results) for place in range(len(items))]

    def _or_refusal(self, item: MemoryCreate | Invalid) -> CheckedMemory | Invalid:
        if isinstance(item, Invalid):
            return item
        try:
            return self.intake.created(item)
        except Invalid as error:
            return error.with_traceback(None)  # the traceback would keep the text in memory

    async def _check(self, caller: Caller, news: Sequence[MemoryCreate]) -> tuple[list[CheckedMemory], dict[str, UUID]]:
        """Returns the checked memories and the ids of the apps that wrote them. Counts against the rate limit."""
        validation.count(news, "memories", self._limits.batch, "limits.batch")
        caller.may_write(*{new.namespace for new in news})
        memories = [new if isinstance(new, CheckedMemory) else self.intake.created(new) for new in news]
        apps = {caller.app: caller.app_id}
        for name in {new.app for new in memories if new.app} - apps.keys():
            if not caller.owner:
                raise Forbidden("Only the user may write in the name of another app.", code="not_your_app")
            apps[name] = (await self._directory.caller(caller.user, name, owner=True)).app_id
        await self._rates.save(caller, len(news))
        return memories, apps

    def _finish_add(self, results: list[MemoryAdded]) -> list[MemoryAdded]:
        """Wakes the delivery and updates the counters after the memories were stored. Returns the memories."""
        self._delivery.wake()
        self._analyze_after_writes.wrote(len(results))
        for each in results:
            is_duplicate = each.event is Event.NONE or each.first_at is not None
            self.written["duplicate" if is_duplicate else each.event.value.lower()] += 1
        return results

    @retry_on_conflict
    async def _store(self, caller: Caller, news: Sequence[CheckedMemory], apps: dict[str, UUID]) -> list[MemoryAdded]:
        async with self._storing(caller, news, apps) as tx:
            results = await changes.add(tx, caller, news, apps)
            await _log_duplicates(tx, caller, results)
        return results

    @retry_on_conflict
    async def _store_one(
        self,
        caller: Caller,
        new: CheckedMemory,
        apps: dict[str, UUID],
        dedup: Dedup | None,
        once: IdempotentRequest | None,
        *,
        explicit: bool,
    ) -> tuple[MemoryAdded, MemoryRowAdded]:
        async with self._storing(caller, [new], apps) as tx:
            if once is not None and (before := await idempotency.claim(tx, caller, once, "memory")) is not None:
                first_result = await stored_rows.answered_before(tx, caller, new, before)
                return first_result, await stored_rows.row_of(tx, caller, new, first_result)
            existing = None
            if dedup is not None:
                read_duplicate = None if explicit else await read_back.duplicate_of_read(tx, caller, new)
                existing = read_duplicate or await dedup(tx)
            [result] = await changes.add(tx, caller, [new], apps) if existing is None else [existing]
            if once is not None:
                await idempotency.store(tx, caller, once, memory_id=result.id, answer=result.stored_answer(new))
            await _log_duplicates(tx, caller, [result])
            return result, await stored_rows.row_of(tx, caller, new, result)

    @asynccontextmanager
    async def _storing(self, caller: Caller, news: Sequence[CheckedMemory], apps: dict[str, UUID]) -> AsyncIterator[Tx]:
        """A transaction that stores texts. A paused app may not."""
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {apps[new.app] if new.app else caller.app_id for new in news})
            try:
                yield tx
            except NotFound:
                self._directory.forget(caller.user)
                raise

    @retry_on_conflict
    async def get(self, caller: Caller, memory_id: UUID) -> MemoryRecord:
        """One memory. The user themself sees it in any state.

        Raises:
            NotFound: there is none, or the caller may not read it.
        """
        caller.may_read()
        async with self._database.transaction() as tx:
            record = await repository.get(tx, caller, memory_id)
            if record is None:
                raise repository.no_memory()
            await access_log.record(tx, caller, AccessType.GET, [memory_id])
        return record

    async def row(self, caller: Caller, memory_id: UUID) -> MemoryRecord | None:
        """One memory for an answer about a change of it, or None if the caller may not read it. Logs no read."""
        async with self._database.statement() as tx:
            return await repository.get(tx, caller, memory_id)

    async def list(self, caller: Caller, query: MemoryQuery, *, export: bool = False) -> Page:
        """A page of memories that the caller may read, and their total number. `export`: logs the read as an export.

        Raises:
            Invalid: a filter, the page, its size or the sorting is invalid.
        """
        validation.between(query.page, "page", 1, 1_000_000)
        validation.between(query.size, "size", 1, MAX_PAGE_SIZE)
        offset = (query.page - 1) * query.size
        items, total = await self.slice(caller, query, offset=offset, limit=query.size, export=export)
        return Page(items=items, total=total, page=query.page, size=query.size)

    async def slice(
        self, caller: Caller, query: MemoryQuery, *, offset: int, limit: int, export: bool = False
    ) -> tuple[Sequence[MemoryRecord], int]:
        """Any range of the memories that `list` pages through, and their total number."""
        caller.may_read()
        query = self.intake.narrowed(caller, query)
        await self._rates.search(caller)
        access = ListAccess(caller, AccessType.EXPORT if export else AccessType.LIST, hashes=True)
        return await pages.page(self._database, access, query, offset=offset, limit=limit)

    async def paused_note(self, caller: Caller) -> str | None:
        """Returns a note if the calling app is paused and therefore gets no memories; None otherwise."""
        if caller.owner:
            return None
        async with self._database.statement() as tx:
            paused = await tx.scalar(select(~is_not_paused()), caller.parameters)
        return paused_message(caller.app, "read memories") if paused else None

    async def count(self, caller: Caller) -> int:
        """The number of active memories that the caller may read. It counts as no access to them."""
        caller.may_read()
        return await pages.total(self._database, caller, self.intake.narrowed(caller, MemoryQuery()))

    async def related(self, caller: Caller, memory_id: UUID, *, page: int = 1) -> Page:
        """A page of five memories that share categories with one: most shared categories first, then the newest.

        The user themself sees all memories that are not deleted.

        Raises:
            NotFound: there is none, or the caller may not read it.
        """
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        await self._rates.search(caller)
        result = await ranked.related(self._database, caller, memory_id, offset=(page - 1) * RELATED, limit=RELATED)
        if result is None:
            raise repository.no_memory()
        return Page(items=result.records, total=result.total, page=page, size=RELATED)

    async def update(
        self, caller: Caller, memory_id: UUID, change: MemoryUpdate | Amendment, *, field: str = "text"
    ) -> MemoryUpdated:
        """Write a new revision of one memory; its vector follows. `field`: the name of the text field in the request.

        A change that depends on the present text or metadata is an `Amendment`, so that no other change is lost.

        Returns the memory and what this update replaced, both from the transaction that wrote it.

        Raises:
            Invalid: a field is blank, too large or cannot be stored, or holds what `capture` refuses.
            NotFound: there is none, or the caller may not read it.
            ConflictError: it is deleted or was changed meanwhile, or another active memory has this text already.
        """
        caller.may_write()
        caller.may_read()  # the answer shows the memory
        intake = self.intake
        checked = intake.changed(change, field) if isinstance(change, MemoryUpdate) else intake.amending(change, field)
        await self._rates.save(caller, 1)
        result = await self._update(caller, memory_id, checked)
        self.written["update"] += 1
        self._delivery.wake()
        if result is None:
            raise repository.no_memory()
        return result

    @retry_on_conflict
    async def _update(self, caller: Caller, memory_id: UUID, change: MemoryUpdate | Amendment) -> MemoryUpdated | None:
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "change memories")
            which = (Memory.id == memory_id) & readable_by(caller, Memory, states=_changeable_states(caller))
            replaced = await changes.update_text(tx, caller, which, change, self.intake.labels, confirms=caller.owner)
            record = await repository.get(tx, caller, memory_id)
            has_expiry = isinstance(change, MemoryUpdate) and change.expiry is not None
            ends = {"expires_at": _iso(record.expires_at)} if has_expiry and record is not None else None
            await access_log.record(tx, caller, AccessType.UPDATE, [memory_id], ends)
            return None if record is None else MemoryUpdated(record, replaced)

    @retry_on_conflict
    async def change_state(self, caller: Caller, ids: Sequence[UUID], target: State, *, strict: bool = True) -> int:
        """Move memories to a state. Returns the number of memories that changed.

        With `strict` it is all or none: an unknown id or a transition that is not allowed fails the request. Without
        it, every memory that can change does, and the request fails only if no memory was accessible or none may
        change. A memory that already has the state counts neither as changed nor as a failure.

        Raises:
            NotFound: an id (without `strict`: every id) is unknown or not the caller's.
            ConflictError: the change is not allowed from the memory's state, or the same text is active already.
        """
        caller.may_write()
        ids = list(dict.fromkeys(ids))
        if not ids:
            return 0
        validation.count(ids, "memory_ids", self._limits.ids, "limits.ids")
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, f"{transitions.ACCESS[target]} memories")
            mine = (Memory.id == func.any(ids)) & transitions.movable(caller, target)
            rows = await tx.execute(select(Memory.id, Memory.state).where(mine), caller.parameters)
            states = {row.id: row.state for row in rows}
            if (strict and len(states) < len(ids)) or not states:
                raise repository.no_memory()
            refused_states = [s for s in states.values() if s is not target and target not in ALLOWED[s]]
            if refused_states and (strict or len(refused_states) == len(states)):
                raise refuse(refused_states[0], target)
            changed_ids = [id_ for id_, _ in await changes.change_state(tx, caller, mine, target)]
            operation = {"operation": "delete_by_id"} if target is State.DELETED and changed_ids else None
            await access_log.record(tx, caller, transitions.ACCESS[target], changed_ids, operation)
        self.written[target.value] += len(changed_ids)
        self._delivery.wake()
        return len(changed_ids)

    @retry_on_conflict
    async def change_state_where(self, caller: Caller, query: MemoryQuery, target: State) -> int:
        """Move every matching memory that the caller may read to a state. Returns the number that changed."""
        caller.may_write()
        query = self.intake.narrowed(caller, query)
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, f"{transitions.ACCESS[target]} memories")
            which, values = ListCriteria.of(caller, query).matching(), parameters(caller, query)
            changed_ids = [id_ for id_, _ in await changes.change_state(tx, caller, which, target, values=values)]
            everything = target is State.DELETED
            access = AccessType.DELETE_ALL if everything else transitions.ACCESS[target]
            operation = {"operation": "bulk_delete"} if everything and changed_ids else None
            await access_log.record(tx, caller, access, changed_ids, operation)
        self.written[target.value] += len(changed_ids)
        self._delivery.wake()
        return len(changed_ids)

    async def delete(self, caller: Caller, ids: Sequence[UUID], *, strict: bool = True) -> int:
        """Soft-delete memories. No search returns them any more; `restore` brings them back."""
        return await self.change_state(caller, ids, State.DELETED, strict=strict)

    async def delete_all(self, caller: Caller) -> int:
        """Soft-delete every memory that the caller may read."""
        return await self.change_state_where(caller, MemoryQuery(), State.DELETED)

    async def restore(self, caller: Caller, ids: Sequence[UUID], *, strict: bool = True) -> int:
        """Make memories active again, from any state."""
        return await self.change_state(caller, ids, State.ACTIVE, strict=strict)

    @retry_on_conflict
    async def restore_last(self, caller: Caller) -> Sequence[UUID]:
        """Make active again what the caller's last deletion took away, and return the ids."""
        caller.may_write()
        async with self._database.transaction() as tx:
            restored_ids = await restoring.restore_last(tx, caller)
        self.written[State.ACTIVE.value] += len(restored_ids)
        self._delivery.wake()
        return restored_ids

    @retry_on_conflict
    async def erase(self, caller: Caller, ids: Sequence[UUID]) -> int:
        """Permanently remove memories with their texts, history, log and vectors, all or none. Only the user may.

        Raises:
            Forbidden: the caller is an app.
            NotFound: an id is unknown or not the caller's.
        """
        caller.must_be_owner("erase memories for good", everywhere=False)
        caller.may_write()
        ids = list(dict.fromkeys(ids))
        validation.count(ids, "memory_ids", self._limits.ids, "limits.ids")
        async with self._database.transaction() as tx:
            states = await repository.states_of(tx, caller, ids)
            if len(states) < len(ids):
                raise repository.no_memory()
            count = await erasure.erase(tx, ids)
            await audit_log.record(tx, caller, AuditAction.MEMORY_ERASE, ids)
        self.written["erase"] += count
        self._delivery.wake()
        return count

    @retry_on_conflict
    async def erase_user(self, caller: Caller) -> int:
        """Permanently remove a user with all memories, apps, rules, logs and vectors. Returns the memory count."""
        caller.must_be_owner("erase themself")
        caller.may_write()
        async with self._database.transaction() as tx:
            count = await erasure.erase_user(tx, caller.user_id, self._erase_sources)
            await audit_log.record(tx, caller, AuditAction.USER_ERASE, detail={"memories": count})
        self.written["erase"] += count
        self._directory.forget(caller.user)
        self._keys.forget_user(caller.user)
        self._delivery.wake()
        return count

    @retry_on_conflict
    async def history(self, caller: Caller, memory_id: UUID) -> History:
        """All states and texts of one memory, oldest first. An app sees its own texts and the current one only."""
        caller.may_read()
        async with self._database.transaction() as tx:
            if await repository.get(tx, caller, memory_id) is None:
                raise repository.no_memory()
            states, revisions = await repository.history(tx, caller, memory_id)
            await access_log.record(tx, caller, AccessType.GET, [memory_id], {"part": "history"})
        return History(memory_id=memory_id, states=states, revisions=revisions)

    async def prune(self) -> None:
        """Remove the idempotency keys that have expired."""
        await idempotency.prune(self._database)

    @retry_on_conflict
    async def access_log(
        self, caller: Caller, memory_id: UUID, *, page: int = 1, page_size: int = 10, fold: bool = True
    ) -> AccessLogPage:
        """The accesses to one memory: of assistants first, newest first. `fold`: repeated ones are one entry.

        A credential limited to some namespaces sees no queries that searched other namespaces.

        Raises:
            Forbidden: the caller is an app. The log shows what others have searched for.
            NotFound: there is none, or it is not the caller's.
        """
        caller.must_be_owner("see who accessed a memory", everywhere=False)
        caller.may_read()
        validation.between(page, "page", 1, 1_000_000)
        validation.between(page_size, "page_size", 1, MAX_PAGE_SIZE)
        async with self._database.transaction() as tx:
            if await repository.get(tx, caller, memory_id) is None:
                raise repository.no_memory()
            await audit_log.record(tx, caller, AuditAction.MEMORY_ACCESS_LOG, [memory_id])
            return await accesses.page(tx, caller, memory_id, page=page, page_size=page_size, fold=fold)


def _changeable_states(caller: Caller) -> tuple[State, ...]:
    """The states of memories that a caller may change. The user themself may change all that are not deleted."""
    return repository.KEPT_STATES if caller.owner else (State.ACTIVE,)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()


async def _log_duplicates(tx: Tx, caller: Caller, results: Sequence[MemoryAdded]) -> None:
    """Record the exact duplicates. New memories are recorded by the statement that stores them."""
    if duplicate_ids := [each.id for each in results if each.event is Event.NONE]:
        await audit_log.record(tx, caller, AuditAction.MEMORY_ADD, duplicate_ids, detail={"event": Event.NONE})
