"""The health of the service and of its dependencies."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from sqlalchemy import func, select, text

from openmemory.access.models import App, User
from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.generations import registry
from openmemory.index.lease import LOST
from openmemory.index.models import Embedding, SyncRun
from openmemory.index.port import IndexUnavailable
from openmemory.index.space import Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.reconcile import Reconciler
from openmemory.memories.models import Memory
from openmemory.saved_settings.row import stored_now
from openmemory.sources.models import Passage


class Check(BaseModel):
    """One dependency: `ok` and what is known of it, or `error` in words."""

    ok: bool
    detail: dict[str, Any] = {}
    error: str | None = None
    milliseconds: float


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
    marks_waiting: int
    marks_stuck: int
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
    ) -> None:
        self._database = database
        self._spaces = spaces
        self._reconciler = reconciler
        self._version = version
        self._index_folder = index_folder

    async def ready(self) -> Readiness:
        """Returns the result of one check of each dependency."""
        checks = {
            "postgres": await _check(self._postgres()),
            "index": await _check(self._vector_index()),
            "embedder": await _check(self._model()),
        }
        if not checks["postgres"].ok:
            return Readiness(status="down", checks=checks)
        return Readiness(status="ok" if all(check.ok for check in checks.values()) else "degraded", checks=checks)

    async def diagnose(self) -> Diagnosis:
        """Returns readiness, counts, stuck outbox entries, and the differences between the two stores."""
        ready = await self.ready()
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
                unreadable = (await stored_now(tx)).unreadable
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
            marks_waiting=waiting, marks_stuck=stuck, drift=drift, collections=collections, last_sync=last,
            problems=problems,
        )  # fmt: skip

    def _index_problems(self) -> list[str]:
        """Returns what this process knows to be wrong with the index and its model."""
        problems: list[str] = []
        lease = self._reconciler.monitor.lease
        if lease.taken:
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
            found = await registry.everyone(tx)
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
            for one in found
        ]  # fmt: skip

    async def _postgres(self) -> dict[str, Any]:
        async with self._database.statement() as tx:
            version, schema = (await tx.execute(_VERSIONS)).one()
        return {"version": version.partition(" ")[0], "schema": schema}

    async def _vector_index(self) -> dict[str, Any]:
        return asdict(await self._spaces.serving.index.status())

    async def _model(self) -> dict[str, Any]:
        space = self._spaces.serving
        found: dict[str, Any] = {"model": space.model, "dimension": await space.embedder.dimension()}
        if self._spaces.obstacle is not None:
            found["obstacle"] = self._spaces.obstacle
        return found


_VERSIONS = text("SELECT current_setting('server_version'), (SELECT version_num FROM alembic_version LIMIT 1)")
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


async def _check(work: Any) -> Check:
    started = time.perf_counter()
    try:
        detail, error = await work, None
    except Unavailable as failure:
        detail, error = {}, failure.message
    except (IndexUnavailable, EmbedderUnavailable) as failure:
        detail, error = {}, str(failure) or type(failure).__name__
    return Check(
        ok=error is None, detail=detail, error=error, milliseconds=round((time.perf_counter() - started) * 1e3, 2)
    )
