"""Finds the memories that a new text may change, for the answer to who adds it.

The look-up runs beside the write and has a budget: what comes late is left out. It never refuses or changes anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Text, Uuid, bindparam, cast, func, select
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by
from openmemory.access.rule_cache import RuleCache
from openmemory.access.rules import ALL
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.dedup.comparison import NEAREST, agree
from openmemory.dedup.replacement import LONGEST, Judgement, Verdict, judge
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.identity.caller import Caller, Default
from openmemory.identity.principal import Scope
from openmemory.index.entries import array_of
from openmemory.index.port import Filter, Hit, IndexUnavailable
from openmemory.index.space import Space, Spaces
from openmemory.memories.index_source import IndexedMemories
from openmemory.memories.models import Memory
from openmemory.memories.schemas import CheckedMemory, NearbyMemory

log = logging.getLogger(__name__)

MAX_RESULTS = 3
"""The maximum number of memories that an answer names."""

BUDGET = 0.06
"""The seconds from the request on after which the look-up is given up. After half of them, it goes by words."""

AT_ONCE = 4
"""The maximum number of look-ups at once. Under more load, answers name no memories."""

Look = Callable[[UUID], Awaitable[list[NearbyMemory]]]
"""Returns the memories that may no longer hold, after the text was stored with this id."""


class NearChanges:
    """Finds the memories that a new text may change."""

    def __init__(self, database: Database, spaces: Spaces) -> None:
        self._database = database
        self._spaces = spaces
        self._rulebook = RuleCache()
        self._running = 0

    @asynccontextmanager
    async def looking(self, caller: Caller, new: CheckedMemory) -> AsyncIterator[Look]:
        """Looks for what is near to a text while the block stores it."""
        if self._running >= AT_ONCE or not _may_change(caller, new):
            yield _nothing
            return
        loop = asyncio.get_running_loop()
        until = loop.time() + BUDGET
        self._running += 1
        near = asyncio.create_task(self._near(caller, new), name="near")

        async def look(id_: UUID) -> list[NearbyMemory]:
            try:
                async with asyncio.timeout_at(until):
                    await asyncio.wait([near], timeout=until - BUDGET / 2 - loop.time())
                    return await self._find(caller, new, id_, near.result() if near.done() else None)
            except (TimeoutError, EmbedderUnavailable, IndexUnavailable, Unavailable) as error:
                log.debug("the answer names nothing near: %s", error)
                return []

        try:
            yield look
        finally:
            self._running -= 1
            near.cancel()
            await asyncio.wait([near])
            if not near.cancelled():
                near.exception()  # nobody waits for it

    async def _near(self, caller: Caller, new: CheckedMemory) -> dict[UUID, float] | None:
        """The nearness of the nearest memories, in order; None if the model does not answer, or cuts the text."""
        space = self._spaces.serving
        where = await self._where(caller, new)
        try:
            vector, *more = (await space.document(new.text)).chunks
            if more:
                return None
            chance = await space.chance(vector)
        except EmbedderUnavailable:
            return None
        return {hit.id: chance.nearness(hit.score) for hit in await space.search(vector, where, NEAREST)}

    async def _where(self, caller: Caller, new: CheckedMemory) -> Filter:
        rules = ALL
        if not caller.owner:
            async with self._database.statement() as tx:
                rules = await self._rulebook.of(tx, caller)
        return Filter(caller.user_id, namespaces=(new.namespace,), rules=rules)

    async def _find(
        self, caller: Caller, new: CheckedMemory, id_: UUID, near: dict[UUID, float] | None
    ) -> list[NearbyMemory]:
        """Those of the near memories that the text may change, the surest first. Logs that they were read.

        If `near` is None, the memories that share words with the text are judged.
        """
        space = self._spaces.serving
        nearness_by_id: Mapping[UUID, float | None] = near or {}
        if near is None:
            nearness_by_id = {hit.id: None for hit in await self._by_words(space, caller, new, id_)}
        others = [(other, nearness) for other, nearness in nearness_by_id.items() if other != id_]
        if not others:
            return []
        values = {**caller.parameters, "ids": array_of(other for other, _ in others)}
        async with self._database.statement() as tx:
            rows = {row.id: row for row in await _readable(caller.owner, caller.default).rows(tx, values)}
        read = [(rows[other], nearness) for other, nearness in others if other in rows]
        results = _judge_rows(new, read)[:MAX_RESULTS]
        if results:
            async with self._database.transaction() as tx:
                await access_log.record(tx, caller, AccessType.SEARCH, [row.id for row, _ in results], {"part": "near"})
        return [
            NearbyMemory(
                id=row.id,
                memory=row.content,
                created_at=row.created_at,
                replaced=judgement.verdict is Verdict.REPLACES,
            )
            for row, judgement in results
        ]

    async def _by_words(self, space: Space, caller: Caller, new: CheckedMemory, id_: UUID) -> list[Hit]:
        """The memories that share most words with the stored text."""
        async with self._database.statement() as tx:
            points = await IndexedMemories().points(tx, [id_])
        if not points:
            return []
        return await space.search_words(points[0].words, await self._where(caller, new), NEAREST)


@cache
def _readable(owner: bool, default: Default) -> CompiledStatement:
    """Those of the memories that may be compared and that the caller may read."""
    query = select(
        Memory.id, Memory.content, Memory.created_at, Memory.key, Memory.metadata_["role"].astext.label("role")
    ).where(
        Memory.id == func.any(cast(bindparam("ids", type_=Text), ARRAY(Uuid))),
        readable_by(Caller.anyone(owner=owner, default=default), Memory),
        func.cardinality(Memory.labels) == 0,
        func.length(Memory.content) <= LONGEST,
    )
    return CompiledStatement(query)


async def _nothing(_: UUID) -> list[NearbyMemory]:
    return []


def _may_change(caller: Caller, new: CheckedMemory) -> bool:
    """Returns True if a text may change others, and the caller may be shown them."""
    return Scope.READ in caller.principal.scopes and not new.labels and len(new.text) <= LONGEST


def _judge_rows(new: CheckedMemory, near: Sequence[tuple[Any, float | None]]) -> list[tuple[Any, Judgement]]:
    pairs = [
        (row, judge(row.content, new.text, nearness))
        for row, nearness in near
        if agree((row.key, new.key), (row.role, new.metadata.get("role")))
        and (new.created_at is None or row.created_at <= new.created_at)
    ]
    some = [(row, judgement) for row, judgement in pairs if judgement.verdict is not Verdict.UNRELATED]
    return sorted(some, key=lambda one: -one[1].probability)
