"""Finds near duplicates of a new text, and applies the policy `dedup.near_duplicates` to them.

A candidate is near by its vector in the index and says the same by its words (`similarity`). It has the same user,
namespace, kind and key, and the caller may read, and therefore change, it. Candidates are checked again under a lock in
the transaction that adds the text. A memory that was changed, archived or denied meanwhile is no candidate any more,
and the new text is stored. Two near duplicates that arrive at the same time may both be stored; none is ever lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_, exists, func, select

from openmemory.access.rule_cache import RuleCache
from openmemory.access.rules import ALL
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.config.sections import DedupSettings
from openmemory.database.engine import Database, Tx
from openmemory.dedup.paraphrases import MAX_TEXT_LENGTH, MIN_SIMILARITY, Relation
from openmemory.dedup.rewriting import complete, rewritable
from openmemory.dedup.sameness import item, sameness
from openmemory.dedup.scope import SharedScope
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.index.models import ItemKind, OutboxEntry
from openmemory.index.port import Filter, Hit, IndexUnavailable
from openmemory.index.space import Spaces
from openmemory.memories import changes
from openmemory.memories.deduplication import Dedup
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle import superseding
from openmemory.memories.models import Memory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.memories.schemas import CheckedMemory, Event, MemoryAdded, PossibleDuplicate

log = logging.getLogger(__name__)

NEAREST = 20
"""The number of memories that are compared with a new one."""

MAX_RESULTS = 5
"""The maximum number of possible duplicates in an answer."""

NO_EMBEDDER = "Not compared with what is remembered: the embedder is unavailable."
NO_INDEX = "Not compared with what is remembered: the vector store is unavailable."
NO_THRESHOLD = "Not compared with what is remembered: dedup.min_similarity is not set for this embedding model."
MERGED = "Not stored: this memory says the same in other words (dedup.near_duplicates)."
COMPLETED = "This memory said less in other words, and says what you have added now (dedup.near_duplicates)."
SUPERSEDED = "Stored in the place of a memory that said the same in other words (dedup.near_duplicates)."
POSSIBLE_DUPLICATES = (
    "Stored, though memories may say the same in other words: see possible_duplicates (dedup.near_duplicates)."
)


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A memory that says the same as a new text, or a part of it."""

    id: UUID
    memory: str
    revision: int
    likeness: float
    relation: Relation


@dataclass(frozen=True, slots=True)
class NearDuplicates:
    """The near duplicates, nearest first. `note` says why no search was possible."""

    alike: list[NearDuplicate] = field(default_factory=list)
    note: str | None = None


class Duplicates:
    """Finds near duplicates and applies the policy `dedup.near_duplicates`. `scope`: the memories that a text may be
    merged into, if not only those of the same kind and key. In a scope, the newer of two texts that say the same stays.
    """

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        settings: DedupSettings,
        intake: Intake,
        scope: SharedScope | None = None,
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._settings = settings
        self._intake = intake
        self._scope = scope
        self._rulebook = RuleCache()

    async def near(self, caller: Caller, new: CheckedMemory) -> NearDuplicates:
        """The memories that say the same as a new one. Embeds its text, at most once.

        Texts that look like prompt injection must not change existing memories, so they are not compared. Texts that
        are valid only for a period, very long texts, and texts from callers without read access are not compared
        either.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if (
            self._settings.near_duplicates == "keep"
            or Scope.READ not in caller.principal.scopes
            or not self._is_comparable(new)
        ):
            return NearDuplicates()
        space = self._spaces.serving
        least = least_similarity(self._settings, space.model)
        if least is None:
            return NearDuplicates(note=NO_THRESHOLD)
        rules = ALL
        if not caller.owner:
            async with self._database.statement() as tx:
                rules = await self._rulebook.of(tx, caller)
        kinds = (new.kind,) if self._scope is None else self._scope.kinds
        where = Filter(caller.user_id, namespaces=(new.namespace,), kinds=kinds, rules=rules)
        try:
            hits = await space.search((await space.query(new.text)).vector, where, NEAREST)
        except (EmbedderUnavailable, IndexUnavailable) as error:
            log.debug("not compared: %s", error)
            return NearDuplicates(note=NO_EMBEDDER if isinstance(error, EmbedderUnavailable) else NO_INDEX)
        hits = [hit for hit in hits if hit.score >= least]
        return NearDuplicates(await self._alike(caller, new, hits) if hits else [])

    async def _alike(self, caller: Caller, new: CheckedMemory, hits: Sequence[Hit]) -> list[NearDuplicate]:
        which = self._candidates(caller, new, [hit.id for hit in hits])
        query = select(Memory.id, Memory.namespace, Memory.key, Memory.content, Memory.revision).where(which)
        async with self._database.statement() as tx:
            rows = {row.id: row for row in await tx.execute(query, self._values(caller, new))}
        # In a thread: comparing long texts takes milliseconds each.
        return await asyncio.to_thread(_judge_hits, new, [(hit, rows[hit.id]) for hit in hits if hit.id in rows])

    async def prepare(self, caller: Caller, new: CheckedMemory, apps: dict[str, UUID]) -> Dedup:
        """Finds the near duplicates. Returns the policy, to be run in the transaction that stores the text."""
        near = await self.near(caller, new)
        return partial(self._add, caller=caller, new=new, near=near, apps=apps)

    async def _add(
        self, tx: Tx, caller: Caller, new: CheckedMemory, near: NearDuplicates, apps: dict[str, UUID]
    ) -> MemoryAdded | None:
        """Apply the policy to the near duplicates. Returns None if there are none; the text is then added as usual."""
        if near.note is not None:
            [stored] = await changes.add(tx, caller, [new], apps)
            return stored.model_copy(update={"note": near.note})
        app_id = apps[new.app] if new.app else caller.app_id
        if not near.alike or (self._scope is None and await _is_exact_duplicate(tx, caller, new, app_id)):
            return None  # an exact duplicate is handled as usual
        if self._settings.near_duplicates == "ask":
            return await self._ask(tx, caller, new, near, apps)
        for alike in near.alike:
            if (row := await self._lock(tx, caller, new, alike)) is None:
                continue
            supersedes = self._settings.near_duplicates == "supersede"
            if superseding.is_later(row.said, new.created_at) and (supersedes or alike.relation is Relation.MORE):
                continue  # what was said earlier neither completes nor replaces what was said later
            if supersedes:
                return await _supersede(tx, caller, new, alike, apps)
            if (added := await self._merge(tx, caller, new, alike, row)) is not None:
                return added
        return None

    async def _ask(
        self, tx: Tx, caller: Caller, new: CheckedMemory, near: NearDuplicates, apps: dict[str, UUID]
    ) -> MemoryAdded:
        [added] = await changes.add(tx, caller, [new], apps)
        which = self._candidates(caller, new, [each.id for each in near.alike])
        query = select(Memory.id, Memory.revision).where(which)
        rows = {row.id: row.revision for row in await tx.execute(query, self._values(caller, new))}
        there = [each for each in near.alike if rows.get(each.id) == each.revision][:MAX_RESULTS]
        if added.event is not Event.ADD or not there:
            return added
        await _log_read(tx, caller, [each.id for each in there])
        possible = [PossibleDuplicate(id=each.id, memory=each.memory, likeness=each.likeness) for each in there]
        return added.model_copy(update={"possible_duplicates": possible, "note": POSSIBLE_DUPLICATES})

    async def _merge(
        self, tx: Tx, caller: Caller, new: CheckedMemory, alike: NearDuplicate, row: Any
    ) -> MemoryAdded | None:
        if alike.relation is Relation.SAME and self._scope is None:
            await _log_read(tx, caller, [alike.id])
            return MemoryAdded(id=alike.id, memory=alike.memory, event=Event.NONE, note=MERGED)
        if not await complete(tx, caller, row, new, self._intake, replaces=self._scope is not None):
            return None
        more: dict[str, Any] = {"previous_memory": alike.memory, "note": COMPLETED}
        if self._scope is not None:
            more["possible_duplicates"] = [PossibleDuplicate(id=alike.id, memory=alike.memory, likeness=alike.likeness)]
        return MemoryAdded(id=alike.id, memory=new.text, event=Event.UPDATE, **more)

    def _is_comparable(self, new: CheckedMemory) -> bool:
        bounded = new.is_bounded if self._scope is None else not self._scope.admits(new)
        return not new.labels and not bounded and len(new.text) <= MAX_TEXT_LENGTH

    def _candidates(self, caller: Caller, new: CheckedMemory, ids: Sequence[UUID]) -> ColumnElement[bool]:
        """The memories among `ids` that may count as duplicates of a new one. Execute with `_values`."""
        scope = self._scope
        own = rewritable(caller, new.namespace, new.kind, new.key) if scope is None else scope.rewritable(caller)
        return and_(Memory.id == func.any(list(ids)), own, is_comparable())

    def _values(self, caller: Caller, new: CheckedMemory) -> dict[str, Any]:
        return caller.parameters | ({} if self._scope is None else self._scope.values(new))

    async def _lock(self, tx: Tx, caller: Caller, new: CheckedMemory, alike: NearDuplicate) -> Any:
        """Locks a memory that was found. None if it has changed, or the caller has lost access to it."""
        query = (
            select(
                Memory.id,
                Memory.metadata_.label("metadata"),
                CATEGORY_NAMES.label("categories"),
                superseding.WRITTEN_AT.label("said"),
            )
            .where(self._candidates(caller, new, [alike.id]), Memory.revision == alike.revision)
            .with_for_update(of=Memory, key_share=True)
        )
        return (await tx.execute(query, self._values(caller, new))).one_or_none()


def least_similarity(settings: DedupSettings, model: str) -> float | None:
    """The minimum similarity of texts that may say the same. None: this model has none."""
    return MIN_SIMILARITY.get(model) if settings.min_similarity == "auto" else settings.min_similarity


async def _supersede(
    tx: Tx, caller: Caller, new: CheckedMemory, alike: NearDuplicate, apps: dict[str, UUID]
) -> MemoryAdded:
    [added] = await changes.add(tx, caller, [new], apps)
    if added.event is not Event.ADD:
        return added
    await superseding.supersede(tx, caller, alike.id, added.id)
    return added.model_copy(update={"event": Event.SUPERSEDE, "previous_memory": alike.memory, "note": SUPERSEDED})


def _judge_hits(new: CheckedMemory, near: Sequence[tuple[Hit, Any]]) -> list[NearDuplicate]:
    """The memories that say the same as a new one. Each hit comes with its row."""
    duplicates, newer = [], item(new.namespace, new.key, new.text)
    for hit, row in near:
        if (relation := sameness(item(row.namespace, row.key, row.content), newer).relation) is not None:
            duplicates.append(NearDuplicate(row.id, row.content, row.revision, round(hit.score, 4), relation))
    return duplicates


def is_comparable() -> ColumnElement[bool]:
    """The memories whose texts can be compared.

    Excludes memories that wait for delivery, because the index found them by their earlier text.
    """
    waits = exists().where(OutboxEntry.kind == ItemKind.MEMORY.value, OutboxEntry.id == Memory.id)
    return and_(func.length(Memory.content) <= MAX_TEXT_LENGTH, ~waits)


async def _is_exact_duplicate(tx: Tx, caller: Caller, new: CheckedMemory, app_id: UUID) -> bool:
    """Returns True if the app has an active exact duplicate."""
    which = and_(
        Memory.user_id == caller.user_id, Memory.namespace == new.namespace, Memory.app_id == app_id,
        Memory.hash == changes.text_hash(new.text), Memory.state == "active",
    )  # fmt: skip
    return (await tx.execute(select(Memory.id).where(which).limit(1))).one_or_none() is not None


async def _log_read(tx: Tx, caller: Caller, ids: Sequence[UUID]) -> None:
    """Logs that the caller has read memories that duplicate the added text."""
    await access_log.record(tx, caller, AccessType.SEARCH, ids, {"part": "duplicates"})
