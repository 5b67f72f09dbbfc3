"""Checks of a project: what cannot be read, is there twice, or refers to what is gone. Each can be repaired."""

from __future__ import annotations

from sqlalchemy import func, text

from openmemory.access.apps import refuse_if_paused
from openmemory.access.rate_limits import RateLimiter
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.identity.caller import Caller
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, repository, validation
from openmemory.memories.intake import STATE, Intake
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryUpdate
from openmemory.memories.state import State
from openmemory.projects import anchors, singletons
from openmemory.projects.schemas import CheckedProject, ProjectCheck
from openmemory.projects.states import parsed

_ENDLESS = """
    FROM memory_links AS l WHERE l.user_id = :user AND EXISTS (
        SELECT FROM memories AS m WHERE m.id IN (l.from_id, l.to_id) AND m.namespace = :namespace)
    AND EXISTS (SELECT FROM memories AS m WHERE m.id IN (l.from_id, l.to_id) AND m.state = 'deleted')
"""
_COUNT_ENDLESS, _DELETE_ENDLESS = text(f"SELECT count(*) {_ENDLESS}"), text(f"DELETE {_ENDLESS}")
_COMPARED = text("SELECT DISTINCT commit FROM anchors WHERE user_id = :user AND namespace = :namespace")


class ProjectChecks:
    """Checks and repairs projects."""

    def __init__(
        self, database: Database, delivery: OutboxDelivery, *, intake: Intake, limits: LimitSettings, rates: RateLimiter
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._intake = intake
        self._limits = limits
        self._rates = rates

    async def check(self, caller: Caller, namespace: str, *, repair: bool = False) -> CheckedProject:
        """Check a project, and `repair` what can be repaired. A repair loses nothing that can be read.

        Only the user may.

        Raises:
            Forbidden: the caller is an app, or the namespace is not the caller's to write in.
            Invalid: the namespace is invalid.
        """
        caller.must_be_owner("check a project", everywhere=False)
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        await self._rates.search(caller)
        checked = await self._check(caller, namespace, repair=repair)
        self._delivery.wake()
        return checked

    @retry_on_conflict
    async def _check(self, caller: Caller, namespace: str, *, repair: bool) -> CheckedProject:
        place = {"user": caller.user_id, "namespace": namespace}
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "check projects")
            twice = await singletons.repeated(tx, caller.user_id, namespace)
            if repair:
                await changes.change_state(tx, caller, Memory.id == func.any(twice), State.ARCHIVED)
            checks = [
                ProjectCheck("repeated", len(twice), repair, "states and values of which the same app has a newer one"),
                await self._state(tx, caller, namespace, repair=repair),
            ]
            endless = await tx.scalar(_COUNT_ENDLESS, place) or 0
            if repair:
                await tx.execute(_DELETE_ENDLESS, place)
            checks.append(ProjectCheck("links", endless, repair, "links to memories that are deleted"))
            commits = set(await anchors.commits_of(tx, caller, namespace))
            unknown = len(commits - set(await tx.scalars(_COMPARED, place)))
            hint = "commits that no client has compared; `openmemory context` in the repository does"
            checks.append(ProjectCheck("anchors", unknown, repaired=False, detail=hint))
            problems = {one.check: one.problems for one in checks if one.problems}
            await audit_log.record(tx, caller, AuditAction.PROJECT_CHECK, detail={"repair": repair} | problems)
        return CheckedProject(namespace, [one for one in checks if one.problems])

    async def _state(self, tx: Tx, caller: Caller, namespace: str, *, repair: bool) -> ProjectCheck:
        """Checks that the state can be read. The repair saves the last revision that could, else an empty state."""
        detail = "the state cannot be read as a JSON object"
        record = await singletons.read(tx, caller, STATE, namespace)
        if record is None or parsed(record.content)[0] is not None:
            return ProjectCheck("state", 0, repaired=False, detail=detail)
        if repair:
            _, revisions = await repository.history(tx, caller, record.id)
            last = next((one for one in reversed(revisions) if parsed(one.new_text)[0] is not None), None)
            readable = "{}" if last is None else last.new_text
            change = MemoryUpdate(text=readable, metadata={"reason": "Repaired: it could not be read."})
            restored = None if last is None else last.revision
            which = Memory.id == record.id
            await changes.update_text(tx, caller, which, change, self._intake.labels, restored_revision=restored)
        return ProjectCheck("state", 1, repair, detail)
