"""The use cases of values: texts that are remembered under a topic and a key, one for each.

A value is a memory of the kind `keyed` whose text is `topic/key: value`, so that searches find its key as well. Two
values that are equal are two memories.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.sql import ColumnElement

from openmemory.access.apps import refuse_if_paused, refuse_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, repository, validation
from openmemory.memories.intake import KEYED, Intake
from openmemory.memories.models import Memory
from openmemory.memories.schemas import CheckedMemory, Event, MemoryCreate, MemoryRecord
from openmemory.memories.state import State
from openmemory.projects import singletons
from openmemory.projects.schemas import NewValue, StoredValue, ValuePage, ValueSet
from openmemory.sources import listing


class Values:
    """Sets, reads, lists and deletes values."""

    def __init__(
        self, database: Database, delivery: OutboxDelivery, *, intake: Intake, limits: LimitSettings, rates: RateLimiter
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._rates = rates

    async def set(self, caller: Caller, new: NewValue) -> ValueSet:
        """Remember a value, or replace the one under this topic and key.

        Raises:
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: a field cannot be stored.
        """
        name = self._name(new.topic, new.key)
        validation.text(new.value, "value", self._limits.value, "limits.value")
        memory = MemoryCreate(f"{name}: {new.value}", namespace=new.namespace, kind=KEYED, key=name)
        checked = self._intake.created(memory, field="value", own=True)
        caller.may_write(checked.namespace)
        await self._rates.save(caller, 1)
        result = await self._set(caller, checked)
        self._delivery.wake()
        return result

    def _name(self, topic: str, key: str) -> str:
        topic, key = self._topic(topic), validation.name(key, "key", self._limits)
        return validation.name(f"{topic}/{key}", "key", self._limits)

    def _topic(self, topic: str) -> str:
        return singletons.value_topic(validation.name(topic, "topic", self._limits))

    @retry_on_conflict
    async def _set(self, caller: Caller, new: CheckedMemory) -> ValueSet:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "set values")
            there = await singletons.present(tx, caller, new.namespace, KEYED, new.key)
            result = await singletons.save(tx, caller, there, new, self._intake.labels)
            if result.event is Event.UPDATE:
                await access_log.record(tx, caller, AccessType.UPDATE, [result.id])
        return ValueSet(*result)

    async def get(self, caller: Caller, topic: str, key: str, namespaces: Sequence[str] = ("default",)) -> StoredValue:
        """The value under a topic and a key, of the first of the namespaces that has one.

        Raises:
            NotFound: there is none, or the caller may not read it.
            Invalid: a name is invalid.
        """
        caller.may_read()
        name, places = self._name(topic, key), self._places(namespaces)
        await self._rates.search(caller)
        async with self._database.statement() as tx:
            for namespace in places:
                if (record := await singletons.read(tx, caller, KEYED, namespace, name)) is not None:
                    return stored_value(record)
        raise _no_value()

    def _places(self, namespaces: Sequence[str]) -> list[str]:
        return [validation.name(name, "namespace", self._limits) for name in namespaces]

    def _which(self, topic: str, key: str, namespace: str) -> ColumnElement[bool]:
        name = self._name(topic, key)
        place = Memory.namespace == validation.name(namespace, "namespace", self._limits)
        return place & singletons.of_kind(KEYED) & (Memory.key == name)

    async def list(
        self,
        caller: Caller,
        *,
        namespaces: Sequence[str] = ("default",),
        topic: str | None = None,
        page: int = 1,
        size: int = 50,
    ) -> ValuePage:
        """A page of the values that the caller may read, by topic and key.

        Raises:
            Invalid: a name, the page or its size is invalid.
        """
        caller.may_read()
        listing.check_page(page, size)
        place = Memory.namespace.in_(self._places(namespaces))
        which = place & singletons.of_kind(KEYED) & readable_by(caller, Memory)
        if topic is not None:
            which &= func.starts_with(Memory.key, self._topic(topic) + "/")
        await self._rates.search(caller)
        some = repository.whole().where(which).order_by(Memory.key, Memory.updated_at.desc(), Memory.id)
        some = some.offset((page - 1) * size).limit(size)
        async with self._database.transaction() as tx:
            total = await tx.scalar(select(func.count()).select_from(Memory).where(which), caller.parameters) or 0
            records = [repository.record(row) for row in await tx.execute(some, caller.parameters)]
            await access_log.record(tx, caller, AccessType.LIST, [one.id for one in records])
        return ValuePage([stored_value(one) for one in records], total, page, size)

    @retry_on_conflict
    async def delete(self, caller: Caller, topic: str, key: str, namespace: str = "default") -> UUID:
        """Soft-delete a value. Returns its id, with which `restore` of memories brings it back.

        Raises:
            NotFound: there is none, or the caller may not read it.
            Forbidden: the app is paused, or the namespace is not the caller's to write in.
        """
        which = self._which(topic, key, namespace) & readable_by(caller, Memory)
        caller.may_write()
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "delete values")
            changed = await changes.change_state(tx, caller, which, State.DELETED)
            if not changed:
                raise _no_value()
            ids = [id_ for id_, _ in changed]
            await access_log.record(tx, caller, AccessType.DELETE, ids, {"operation": "delete_by_key"})
        self._delivery.wake()
        return ids[0]


def stored_value(record: MemoryRecord) -> StoredValue:
    """Returns the value that a memory of the kind `keyed` holds."""
    topic, key, value = singletons.value_parts(record.key, record.content)
    return StoredValue(
        record.id, topic, key, value, record.namespace, record.text_app_name, record.revision, record.created_at,
        record.updated_at, record.labels,
    )  # fmt: skip


def _no_value() -> NotFound:
    return NotFound("Value not found", code="value_not_found")
