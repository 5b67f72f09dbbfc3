"""The use cases of the sync: run it on request, and list the runs."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import ConflictError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.index.port import IndexUnavailable
from openmemory.index.sync.reconcile import Reconciler, SyncRunning
from openmemory.index.sync.runs import Run, SyncStatistics


class SyncAnswer(BaseModel):
    """The result of a sync."""

    status: Literal["success", "partial"]
    statistics: SyncStatistics


class SyncRuns(BaseModel):
    """The newest runs, newest first. They are kept for 30 days."""

    runs: list[Run]


class IndexSync:
    """Runs the sync for callers that may ask for it."""

    def __init__(self, database: Database, reconciler: Reconciler) -> None:
        self._database = database
        self._reconciler = reconciler

    async def run(
        self, who: Caller | Principal, *, trigger: str, dry_run: bool = False, full: bool = False
    ) -> SyncAnswer:
        """Make the index equal to PostgreSQL: for the caller's memories, or for everybody's if `who` is a principal.

        Raises:
            Forbidden: `who` may not write, may not have everything embedded again (`full`), or is no administrator.
            ConflictError: another sync is running.
            Unavailable: the index or the embedding model does not answer.
        """
        user = None
        if isinstance(who, Caller):
            who.may_write()
            if full:
                who.must_be_owner("have all of their memories embedded again")
            user = who.user_id
        else:
            who.must_administer()
        async with self._database.statement() as tx:
            await audit_log.record(tx, who, AuditAction.INDEX_SYNC, detail={"dry_run": dry_run, "full": full})
        try:
            statistics = await self._reconciler.sync(trigger=trigger, user=user, dry_run=dry_run, full=full)
        except SyncRunning as error:
            raise ConflictError(str(error), code="sync_running", hint="Wait for it to end.") from error
        except IndexUnavailable as error:
            raise Unavailable(f"The vector index does not answer: {error}", code="index_unavailable") from error
        except EmbedderUnavailable as error:
            raise Unavailable(f"The embedder does not answer: {error}", code="embedder_unavailable") from error
        return SyncAnswer(status="partial" if statistics.errors else "success", statistics=statistics)

    async def runs(self, principal: Principal, limit: int) -> SyncRuns:
        """List the newest runs of the sync.

        Raises:
            Forbidden: the principal may not see the service as a whole.
        """
        principal.must_operate()
        return SyncRuns(runs=await self._reconciler.runs(limit))
