"""The category assignment job. It uses vectors and words, and calls no language model.

Only memories whose categories no client has set are processed: a category that a client adds or removes is final.
Assignments of the service are marked as `automatic`. They work like others in searches, lists and counts, and rules
that deny a category apply to them. Rules that allow a category ignore them (`readable_by`), and an assignment to a
category that a rule denies is never removed. A guess may therefore hide a memory from an app but never reveal one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
from sqlalchemy import bindparam, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql import UUID as PG_UUID

from openmemory.access.directory import Directory
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.categories import classifier, descriptions, requests
from openmemory.categories import preview as category_preview
from openmemory.categories.classifier import CategoryVectors, Choice, Matrix
from openmemory.categories.schemas import MAX_CHARACTERS, MAX_MEMORIES, Preview, Waiting
from openmemory.categories.taxonomy import NAMES, SUBJECTS, Subject
from openmemory.config.sections import CategorySettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.database.sql_files import load_sql
from openmemory.embeddings.port import Embedder, EmbedderUnavailable
from openmemory.errors import ConflictError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Door, Principal
from openmemory.index.models import ItemKind
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import SyncRunning, alone
from openmemory.memories import validation

log = logging.getLogger(__name__)

LOCK = 0x6F6D6361
"""The key of the advisory lock, which lets only one process assign categories at a time."""

PAGE = 200
"""Memories per transaction."""

LATER = 60.0
"""Seconds until the first retry of a memory that could not be processed. Doubles with each further retry."""

MAX_PAUSE = 86_400.0

_REMEMBERED = 64
"""The number of category sets whose vectors are cached. All users without own categories share one set."""

_IDS = ARRAY(PG_UUID())
_DUE = text(
    f"""
    SELECT k.memory_id AS id, m.user_id, u.user_id AS user,
        left(m.content, {MAX_CHARACTERS}) AS content, e.vector
    FROM pending_categorizations AS k
    JOIN memories AS m ON m.id = k.memory_id
    JOIN users AS u ON u.id = m.user_id
    LEFT JOIN embeddings AS e ON e.kind = 'memory' AND e.id = m.id AND e.model = :model AND e.text_hash = m.hash
    WHERE k.due_at <= now() AND m.user_id = ANY(:users) ORDER BY k.due_at, k.memory_id LIMIT :limit
    FOR NO KEY UPDATE OF k, m SKIP LOCKED
    """  # noqa: S608 - only a constant is put in
).bindparams(bindparam("users", type_=_IDS))
_WHOSE = text(
    """
    SELECT DISTINCT m.user_id
    FROM (
        SELECT memory_id FROM pending_categorizations WHERE due_at <= now() ORDER BY due_at, memory_id LIMIT :limit
    ) AS k
    JOIN memories AS m ON m.id = k.memory_id
    """
)
# Runs after the rows are locked, because a client may have set categories a moment ago.
_ASSIGNED = text(
    """
    SELECT f.memory_id, array_agg(c.name) AS names, bool_or(NOT f.automatic) AS given
    FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
    WHERE f.memory_id = ANY(:ids) GROUP BY f.memory_id
    """
).bindparams(bindparam("ids", type_=_IDS))
_MAKE = text(
    """
    INSERT INTO categories (name, description)
    SELECT n.name, n.description FROM unnest(CAST(:names AS text[]), CAST(:descriptions AS text[]))
        AS n(name, description)
    WHERE NOT EXISTS (SELECT FROM categories AS c WHERE c.name = n.name)
    ORDER BY n.name COLLATE "C" ON CONFLICT DO NOTHING
    """
)
_ASSIGNMENTS = "(SELECT * FROM unnest(CAST(:ids AS uuid[]), CAST(:names AS text[]))) AS w(id, name)"
_UNASSIGN = text(
    f"""
    DELETE FROM memory_categories AS f USING categories AS c
    WHERE f.memory_id = ANY(:changed) AND f.automatic AND c.id = f.category_id
        AND NOT EXISTS (SELECT FROM {_ASSIGNMENTS} WHERE w.id = f.memory_id AND w.name = c.name)
        AND NOT EXISTS (
            SELECT FROM access_controls AS r
            WHERE r.user_id = f.user_id AND r.object_key = 'category:' || CAST(f.category_id AS text)
                AND r.effect = 'deny')
    """  # noqa: S608 - only constants are put in
).bindparams(bindparam("changed", type_=_IDS))
_ASSIGN = text(
    f"""
    INSERT INTO memory_categories (memory_id, category_id, automatic)
    SELECT w.id, c.id, true FROM {_ASSIGNMENTS} JOIN categories AS c ON c.name = w.name
    ORDER BY 1, 2 ON CONFLICT DO NOTHING
    """  # noqa: S608 - as above
)
_DELETE_PROCESSED = text(
    "DELETE FROM pending_categorizations WHERE memory_id = ANY(:ids) AND due_at < 'infinity'"
).bindparams(bindparam("ids", type_=_IDS))
_POSTPONE = text(
    """
    UPDATE pending_categorizations SET attempts = attempts + 1, last_error = :error,
        due_at = now() + make_interval(secs => least(:later * power(2, least(attempts, 20)), :longest))
    WHERE memory_id = ANY(:ids) AND due_at < 'infinity'
    """
).bindparams(bindparam("ids", type_=_IDS))
_WAITING = text(load_sql(__name__, "waiting", categorizable=requests.CATEGORIZABLE))


class CategoryAssignment:
    """Assigns categories to waiting memories, in batches."""

    def __init__(
        self,
        database: Database,
        directory: Directory,
        spaces: Spaces,
        delivery: OutboxDelivery,
        *,
        settings: CategorySettings,
    ) -> None:
        self._database = database
        self._directory = directory
        self._spaces = spaces
        self._delivery = delivery
        self._settings = settings
        self._vectors: OrderedDict[tuple[str, tuple[Subject, ...]], CategoryVectors] = OrderedDict()
        self._shared_exist = False
        self.changed = 0
        """Memories whose categories this process has changed since its start."""
        self.start: Callable[[], None] | None = None
        """Starts a run immediately, or another one after the current run. None if no job runs in this process."""

    async def run(self) -> int:
        """Assign categories until nothing is due. Returns the number of memories that gained or lost a category.

        Does nothing while another process runs the job.

        Raises:
            Unavailable: PostgreSQL does not answer. Assignments made so far are kept.
        """
        if self._settings.assign == "off":
            return 0
        before = self.changed
        try:
            async with alone(self._database, LOCK):
                await requests.queue_requested(self._database)
                while await self._some() == PAGE:
                    continue
        except SyncRunning:
            return 0
        except EmbedderUnavailable as error:
            log.debug("categories are assigned later: %s", error)
        if count := self.changed - before:
            log.info("categories: %d memories changed", count)
        return self.changed - before

    async def request(self, caller: Caller, *, again: bool) -> Waiting:
        """Start the assignment of a user's waiting memories. `again`: also of processed ones that no client has set.

        Raises:
            Forbidden: the caller is an app, is limited to some namespaces, or may not write.
            ConflictError: the service assigns no categories.
        """
        caller.must_be_owner("have categories assigned")
        caller.may_write()
        if self._settings.assign == "off":
            raise ConflictError(
                "This service assigns no categories.",
                code="categories_off",
                hint='Set categories.assign = "local" and start it again.',
            )
        if again:
            async with self._database.transaction() as tx:
                await requests.request_reclassification(tx, caller.user_id)
        if self.start is not None:
            self.start()
        return await self.waiting(caller)

    async def waiting(self, caller: Caller) -> Waiting:
        """The number of a user's memories that wait for category assignment.

        Raises:
            Forbidden: the caller is an app, is limited to some namespaces, or may not read.
        """
        caller.must_be_owner("see what waits for a category")
        caller.may_read()
        async with self._database.statement() as tx:
            row = (await tx.execute(_WAITING, {"user": caller.user_id})).one()
        return Waiting(waiting=row.waiting, failed=row.failed)

    async def preview(self, caller: Caller, *, again: bool = False, limit: int = 100) -> Preview:
        """A preview of the assignments that the service would make now. `again`: includes processed memories.

        Writes nothing, and also works if the service assigns no categories.

        Raises:
            Forbidden: the caller is an app, is limited to some namespaces, or may not read.
            Invalid: the limit is invalid.
            Unavailable: the embedding model does not answer.
        """
        caller.must_be_owner("see which categories would be assigned")
        caller.may_read()
        validation.between(limit, "limit", 1, MAX_MEMORIES)
        space = self._spaces.serving
        async with self._database.transaction() as tx:
            rows, total = await category_preview.read(tx, caller, space.model, again=again, limit=limit)
            subjects = (await descriptions.subjects(tx, {caller.user_id})).get(caller.user_id, SUBJECTS)
            await access_log.record(tx, caller, AccessType.LIST, [row.id for row in rows], {"operation": "categories"})
        try:
            category_vectors, dimension = await self._vectors_of(space, subjects), await space.dimension()
        except EmbedderUnavailable as error:
            raise Unavailable(f"The embedding model does not answer: {error}", code="embedder_unavailable") from error
        choices = await asyncio.to_thread(self._choose, _ready(rows, dimension), category_vectors, dimension)
        return category_preview.build_preview(rows, total, choices)

    async def _some(self) -> int:
        """Processes one page. Returns the number of waiting memories that were processed."""
        space = self._spaces.serving
        async with self._database.statement() as tx:
            users = set(await tx.scalars(_WHOSE, {"limit": PAGE}))
            if not users:
                return 0
            subjects = await descriptions.subjects(tx, users)
        await self._make()
        # Before any row is locked, because a model may be slow.
        vectors_by_user = {user: await self._vectors_of(space, subjects.get(user, SUBJECTS)) for user in users}
        looked: list[UUID] = []
        try:
            changed, number = await self._page(space, vectors_by_user, looked)
        except (Unavailable, EmbedderUnavailable):
            raise
        except Exception as error:  # postpone these, continue with the others
            log.exception("categories of %d memories could not be assigned; they are tried again", len(looked))
            await self._postpone(looked, f"{type(error).__name__}: {error}"[:500])
            return len(looked)
        self.changed += changed
        if changed:
            self._delivery.wake()
        return number

    async def _make(self) -> None:
        """Create OpenMemory's categories in a transaction of their own, so that other transactions need not wait."""
        if self._shared_exist:
            return
        values = {"names": list(NAMES), "descriptions": [subject.description for subject in SUBJECTS]}
        async with self._database.transaction() as tx:
            await tx.execute(_MAKE, values)
        self._shared_exist = True

    @retry_on_conflict
    async def _page(
        self, space: Space, vectors_by_user: Mapping[UUID, CategoryVectors], looked: list[UUID]
    ) -> tuple[int, int]:
        """Process one page in one transaction. Returns the number of changed and of processed memories.

        `vectors_by_user`: the categories of each user on the page. `looked` receives the ids, in case the call fails.
        """
        dimension = await space.dimension()
        async with self._database.transaction() as tx:
            due = (await tx.execute(_DUE, {"model": space.model, "limit": PAGE, "users": [*vectors_by_user]})).all()
            looked[:] = [row.id for row in due]
            assigned = {row.memory_id: row for row in await tx.execute(_ASSIGNED, {"ids": looked})}
            ours = [row for row in due if row.id not in assigned or not assigned[row.id].given]
            ready = _ready(ours, dimension)
            missing = {row.id for row in ours} - {row.id for row in ready}
            names_by_memory: dict[UUID, list[str]] = {}
            for of_user in {row.user_id for row in ready}:
                rows = [row for row in ready if row.user_id == of_user]
                choices_by_memory = await asyncio.to_thread(self._choose, rows, vectors_by_user[of_user], dimension)
                names_by_memory |= {id_: [one.name for one in choices] for id_, choices in choices_by_memory.items()}
            changed = [row for row in ready if set(names_by_memory[row.id]) != set(_names(assigned, row.id))]
            count = await self._write(tx, changed, names_by_memory)
            await tx.execute(_DELETE_PROCESSED, {"ids": [id_ for id_ in looked if id_ not in missing]})
            await tx.execute(_POSTPONE, _pause(missing, "the text has no vector of the model in use yet"))
        return count, len(due)

    def _choose(
        self, rows: Sequence[Any], category_vectors: CategoryVectors, dimension: int
    ) -> dict[UUID, list[Choice]]:
        if not rows:
            return {}
        chunks = [np.frombuffer(row.vector, dtype="<f4").reshape(-1, dimension) for row in rows]
        vectors = np.stack([classifier.of_chunks(each) for each in chunks])
        sure = classifier.confidences(vectors, [row.content for row in rows], category_vectors)
        threshold, most = self._settings.threshold, self._settings.most
        return {
            row.id: classifier.choose(each, category_vectors, threshold=threshold, most=most)
            for row, each in zip(rows, sure, strict=True)
        }

    async def _write(self, tx: Tx, changed: Sequence[Any], names_by_memory: dict[UUID, list[str]]) -> int:
        if not changed:
            return 0
        assignments = [(row.id, name) for row in changed for name in names_by_memory[row.id]]
        values = {"ids": [id_ for id_, _ in assignments], "names": [name for _, name in assignments]}
        ids = [row.id for row in changed]
        await tx.execute(_UNASSIGN, values | {"changed": ids})
        await tx.execute(_ASSIGN, values)
        await outbox.add_entries(tx, ItemKind.MEMORY, ids)
        alike: dict[tuple[str, tuple[str, ...]], list[UUID]] = {}
        for row in changed:
            alike.setdefault((row.user, tuple(names_by_memory[row.id])), []).append(row.id)
        for (user, names), some in alike.items():
            caller = replace(await self._directory.existing(user), principal=_PRINCIPAL)
            await access_log.record(
                tx, caller, AccessType.UPDATE, some, {"operation": "categories", "categories": list(names)}
            )
        return len(ids)

    async def _vectors_of(self, space: Space, subjects: tuple[Subject, ...]) -> CategoryVectors:
        """The vectors of these categories, cached while they are used."""
        key = space.model, subjects
        if (category_vectors := self._vectors.get(key)) is None:
            common = None if subjects is SUBJECTS else await self._vectors_of(space, SUBJECTS)
            category_vectors = self._vectors[key] = await learned(space.embedder, subjects, common)
            while len(self._vectors) > _REMEMBERED:
                self._vectors.popitem(last=False)
        self._vectors.move_to_end(key)
        return category_vectors

    async def _postpone(self, ids: Sequence[UUID], error: str) -> None:
        async with self._database.transaction() as tx:
            await tx.execute(_POSTPONE, _pause(ids, error))


_PRINCIPAL = Principal("categories", "categories", door=Door.JOB)


async def learned(embedder: Embedder, subjects: tuple[Subject, ...], common: CategoryVectors | None) -> CategoryVectors:
    """The vectors of these categories. Only embeds categories that are not in `common`."""
    vectors: dict[Subject, Matrix] = {}
    if common is not None:
        parts = np.split(common.phrases, common.starts[1:])
        vectors = dict(zip(common.subjects, parts, strict=True))
    new = [subject for subject in subjects if subject not in vectors]
    embeddings = iter(await embedder.documents([phrase for subject in new for phrase in subject.phrases]))
    for subject in new:
        vectors[subject] = np.stack([classifier.of_chunks(next(embeddings).chunks) for _ in subject.phrases])
    category_vectors = classifier.build_vectors(subjects, np.concatenate([vectors[subject] for subject in subjects]))
    # The baseline is measured on OpenMemory's categories only. A user's description must not shift it for the others.
    return category_vectors if common is None else category_vectors._replace(usual=common.usual, spread=common.spread)


def _ready(rows: Sequence[Any], dimension: int) -> list[Any]:
    """The rows with vectors of this dimension."""
    return [row for row in rows if row.vector and len(row.vector) % (4 * dimension) == 0]


def _names(assigned: dict[UUID, Any], id_: UUID) -> Sequence[str]:
    return assigned[id_].names if id_ in assigned else ()


def _pause(ids: Any, error: str) -> dict[str, Any]:
    return {"ids": list(ids), "error": error, "later": LATER, "longest": MAX_PAUSE}
