"""The health of the service and of its dependencies."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from sqlalchemy import func, select, text

from openmemory.access.models import App, User
from openmemory.capture.backlog import backlog
from openmemory.capture.worker import Worker
from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import SetupError
from openmemory.health.probes import Check, Probe
from openmemory.index.generations import registry
from openmemory.index.lease import LOST
from openmemory.index.models import Embedding, SyncRun
from openmemory.index.port import IndexUnavailable
from openmemory.index.space import Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.reconcile import Reconciler
from openmemory.memories.models import Memory
from openmemory.objects.service import Objects
from openmemory.resilience.circuit_breaker import BreakerState
from openmemory.saved_settings.row import read_settings
from openmemory.saved_settings.trials import Trials
from openmemory.schema.catalogue import in_words, lacking_now
from openmemory.sources.models import Passage


class Readiness(BaseModel):
    """The readiness of the service: `degraded` with text search only, `down` without PostgreSQL."""

    status: Literal["ok", "degraded", "down"]
    checks: dict[str, Check]


class Passed(BaseModel):
    """The state of one dependency."""

    ok: bool


class ReadinessSummary(BaseModel):
    """Readiness as anybody may know it."""

    status: Literal["ok", "degraded", "down"]
    checks: dict[str, Passed]


class Collection(BaseModel):
    """One collection of the index: active (searches use it), building (beside it, for another model) or retired.

    `points` is None where it was not counted: a retired one, or an index that does not answer.
    """

    collection: str
    model: str
    dimension: int
    state: Literal["building", "active", "retired"]
    points: int | None
    activated_at: datetime | None
    retired_at: datetime | None


class Diagnosis(BaseModel):
    """Readiness, and what an admin wants to know besides. `problems` is empty when all is well, and only then is
    `status` ok. `sizes`: bytes on disk of the `database` in PostgreSQL, and of the built-in `index`."""

    status: Literal["ok", "degraded", "down"]
    version: str
    checks: dict[str, Check]
    counts: dict[str, int]
    sizes: dict[str, int]
    vectors_waiting: int
    vectors_stuck: int
    drift: int | None
    collections: list[Collection]
    last_sync: dict[str, Any] | None
    problems: list[str]


class Health:
    """Checks every dependency. `index_folder`: the folder of the built-in index; None: a Qdrant server holds it."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        reconciler: Reconciler,
        version: str,
        *,
        index_folder: Path | None = None,
        objects: Objects | None = None,
        models: Trials | None = None,
        captures: Worker | None = None,
    ) -> None:
        """`objects`: the store of documents, if it is used; `models`: asks the language model in use; `captures`: knows
        how it answered last."""
        self._database = database
        self._spaces = spaces
        self._reconciler = reconciler
        self._version = version
        self._index_folder = index_folder
        self._models = models
        self._captures = captures
        self._server = Probe(self._postgres, within=_PATIENCE)
        self._writes = Probe(self._written, within=_PATIENCE, keep=10)
        self._others = {
            "index": Probe(self._vector_index, within=_PATIENCE),
            "embedder": Probe(self._model, within=_PATIENCE, keep=30, of=lambda: self._spaces.serving),
        }
        if objects is not None:
            self._others["documents"] = Probe(objects.check, within=_PATIENCE, keep=60)
        self._schema = Probe(self._compared, within=_PATIENCE)
        self._llm = Probe(self._language_model, within=_LLM_PATIENCE, keep=60)

    async def ready(self, *, anew: bool = False) -> Readiness:
        """Returns the result of a check of each dependency. `anew`: of one that is not over yet."""
        server, *others = await asyncio.gather(
            self._server.check(anew=anew), *(probe.check(anew=anew) for probe in self._others.values())
        )
        if server.ok and not (written := await self._writes.check(anew=anew)).ok:
            server = server.model_copy(update={"ok": False, "error": written.error})
        checks = {"postgres": server, **dict(zip(self._others, others, strict=True))}
        # Without a call: one that costs money or wakes a model is left to the doctor.
        if self._captures is not None and self._captures.away:
            checks["language_model"] = Check(ok=False, error="it did not answer the last time", milliseconds=0)
        if not server.ok:
            return Readiness(status="down", checks=checks)
        return Readiness(status="ok" if all(check.ok for check in checks.values()) else "degraded", checks=checks)

    async def diagnose(self) -> Diagnosis:
        """Returns readiness, counts, stuck outbox entries, and the differences between the two stores."""
        ready = await self._examined()
        problems = [f"{name}: {check.error}" for name, check in ready.checks.items() if not check.ok]
        counts: dict[str, int] = {}
        sizes: dict[str, int] = {}
        waiting = stuck = 0
        drift: int | None = None
        last: dict[str, Any] | None = None
        collections: list[Collection] = []
        unreadable: tuple[str, ...] = ()
        if ready.checks["postgres"].ok:
            async with self._database.transaction() as tx:
                waiting, stuck = await outbox.waiting(tx)
                for name, count in (await tx.execute(_COUNTS)).one()._mapping.items():
                    counts[name] = count
                sizes["database"] = (await tx.execute(_DATABASE_SIZE)).scalar_one()
                unreadable = (await read_settings(tx)).unreadable
                captures = await backlog(tx)
                counts |= {"captures_waiting": captures.waiting, "captures_failed": captures.failed}
                problems += captures.problems
                row = (await tx.execute(_LAST_SYNC)).one_or_none()
                last = dict(row._mapping) if row else None
            if ready.checks["index"].ok:
                try:
                    drift = await self._reconciler.drift()
                    counts["index_points"] = await self._spaces.serving.index.count()
                except IndexUnavailable as error:
                    problems.append(f"index: it went away while it was compared: {error}")
            collections = await self._collections()
        if self._index_folder is not None:
            sizes["index"] = await asyncio.to_thread(_folder_size, self._index_folder)
        problems += self._index_problems()
        if unreadable:
            problems.append(
                f"configuration: {', '.join(unreadable)} was saved in a form that cannot be read, and counts as not"
                " saved; save the configuration again, or reset it"
            )
        if stuck:
            problems.append(
                f"marks: {stuck} items could not be delivered to the index for {outbox.STUCK_AFTER} attempts"
            )
        if drift is not None and drift > waiting:
            problems.append(f"index: {drift} entries differ from PostgreSQL; run `openmemory sync`")
        if last and last["error"]:
            problems.append(f"sync: the last run failed: {last['error']}")
        status = "degraded" if ready.status == "ok" and problems else ready.status
        return Diagnosis(
            status=status, version=self._version, checks=ready.checks, counts=counts, sizes=sizes,
            vectors_waiting=waiting, vectors_stuck=stuck, drift=drift, collections=collections, last_sync=last,
            problems=problems,
        )  # fmt: skip

    async def _examined(self) -> Readiness:
        """Returns readiness with the checks that take too long for every probe of a load balancer."""
        ready, llm = await asyncio.gather(self.ready(anew=True), self._llm.check())
        if llm.detail or not llm.ok:
            ready.checks["language_model"] = llm
        if ready.checks["postgres"].ok:
            ready.checks["schema"] = await self._schema.check(anew=True)
        return ready

    def _index_problems(self) -> list[str]:
        """Returns what this process knows to be wrong with the index and its model."""
        problems: list[str] = []
        lease = self._reconciler.monitor.lease
        if lease.is_elsewhere:
            problems.append(f"index: {LOST}, so searches find by words alone; stop that service, or use one Qdrant")
        elif lease.foreign is not None:
            problems.append(f"index: searches find by words alone, because {lease.foreign}")
        elif (reason := self._spaces.serving.behind) is not None:
            problems.append(f"index: memories may be missing in it, because {reason}; run `openmemory sync`")
        if self._spaces.obstacle is not None:
            problems.append(f"model: {self._spaces.obstacle}; searches go on with {self._spaces.serving.model}")
        return problems

    async def _collections(self) -> list[Collection]:
        async with self._database.statement() as tx:
            processes = await registry.everyone(tx)
        points: dict[str, int] = {}
        for space in (self._spaces.serving, self._spaces.building):
            if space is not None:
                with suppress(IndexUnavailable):  # an index that does not answer is reported by the checks
                    points[space.collection] = await space.index.count()
        return [
            Collection(
                collection=one.collection, model=one.model, dimension=one.dimension, state=one.state.value,
                points=points.get(one.collection), activated_at=one.activated_at, retired_at=one.retired_at,
            )
            for one in processes
        ]  # fmt: skip

    async def _postgres(self) -> dict[str, Any]:
        async with self._database.statement() as tx:
            version, schema = (await tx.execute(_VERSIONS)).one()
        return {"version": version.partition(" ")[0], "schema": schema}

    async def _written(self) -> dict[str, Any]:
        """Does what every write needs, and changes nothing."""
        async with self._database.planned() as tx:
            await tx.execute(_NOTHING)
        async with self._database.transaction() as tx:
            await tx.execute(_BOUNDS)
            await tx.execute(_WRITE)
            await tx.execute(_FILE)
        return {}

    async def _compared(self) -> dict[str, Any]:
        async with self._database.statement() as tx:
            if missing := await lacking_now(tx):
                raise SetupError(f"the database lacks {in_words(missing)}; restore it from a back-up")
        return {}

    async def _vector_index(self) -> dict[str, Any]:
        return asdict(await self._spaces.serving.index.status())

    async def _model(self) -> dict[str, Any]:
        space = self._spaces.serving
        if space.embedder_breaker.state is not BreakerState.CLOSED:
            raise EmbedderUnavailable("it failed repeatedly, and is asked again every few seconds")
        await space.ask_model()
        details: dict[str, Any] = {"model": space.model, "dimension": await space.dimension()}
        if self._spaces.obstacle is not None:
            details["obstacle"] = self._spaces.obstacle
        return details

    async def _language_model(self) -> dict[str, Any]:
        model = None if self._models is None else await self._models.probe_language_model()
        return {} if model is None else {"model": model}


_PATIENCE = 4.0
"""Seconds that a dependency has to answer."""

_LLM_PATIENCE = 15.0
"""Seconds that a language model has to answer."""

_VERSIONS = text("SELECT current_setting('server_version'), (SELECT version_num FROM alembic_version LIMIT 1)")
_NOTHING = text("SELECT 1")
_BOUNDS = text("SELECT set_config('work_mem', '64kB', true), set_config('lock_timeout', '2s', true)")
_WRITE = text("UPDATE memories SET id = id WHERE false")
"""Refused by a read-only server, by a lock on the table, and to a role that may not write."""
_FILE = text("SELECT count(*) FROM generate_series(1, 40000)")
"""More than `work_mem` holds, so PostgreSQL writes a temporary file of about a megabyte: a full disk refuses it."""
_DATABASE_SIZE = select(func.pg_database_size(func.current_database()))
_COUNTS = select(
    select(func.count()).select_from(User).scalar_subquery().label("users"),
    select(func.count()).select_from(App).scalar_subquery().label("apps"),
    select(func.count()).select_from(Memory).scalar_subquery().label("memories"),
    select(func.count()).select_from(Memory).where(Memory.state == "active").scalar_subquery().label("memories_active"),
    select(func.count()).select_from(Passage).scalar_subquery().label("passages"),
    select(func.count()).select_from(Embedding).scalar_subquery().label("embeddings"),
)
_LAST_SYNC = (
    select(SyncRun.trigger, SyncRun.started_at, SyncRun.finished_at, SyncRun.statistics, SyncRun.error)
    .where(SyncRun.finished_at.is_not(None))
    .order_by(SyncRun.started_at.desc())
    .limit(1)
)


_BLOCK = 512
"""Bytes of a block as `stat` counts them, on every file system."""


def _folder_size(folder: Path) -> int:
    """Returns the bytes that the files in a folder take on the disk. The index reserves larger files than it fills, and
    may remove some meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.lstat(f"{parent}/{name}").st_blocks * _BLOCK
    return total
