"""The use cases of projects: namespaces with a name and a repository, and all that is in them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import ColumnElement, delete, exc, func, select

from openmemory.access.apps import refuse_if_paused, refuse_paused, refuse_unreadable
from openmemory.access.rate_limits import RateLimiter
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx, violated
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid, NotFound
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.index.models import OutboxEntry
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.memories import changes, validation
from openmemory.memories.intake import Intake
from openmemory.memories.models import ACTIVE, Memory
from openmemory.memories.state import State
from openmemory.projects import moving, registrations, spelling
from openmemory.projects.models import Project
from openmemory.projects.schemas import (
    NewProject,
    ProjectDeleted,
    ProjectList,
    ProjectMoved,
    ProjectStatus,
    RegisteredProject,
)
from openmemory.projects.states import ProjectStates
from openmemory.sources import lifecycle
from openmemory.sources.models import Source, SourceKind

_PART = {
    SourceKind.CONVERSATION.value: "conversations",
    SourceKind.FILE.value: "files",
    SourceKind.DOCUMENT.value: "documents",
}
_NOTHING = dict.fromkeys(("memories", *_PART.values()), 0)


class Projects:
    """Registers, lists, moves and deletes projects."""

    def __init__(
        self,
        database: Database,
        delivery: OutboxDelivery,
        states: ProjectStates,
        *,
        intake: Intake,
        limits: LimitSettings,
        rates: RateLimiter,
    ) -> None:
        self._database = database
        self._delivery = delivery
        self._states = states
        self._intake = intake
        self._limits = limits
        self._rates = rates

    async def register(self, caller: Caller, new: NewProject) -> RegisteredProject:
        """Register a namespace as a project, or change what is known of it.

        A registration that a rule hides from the app stays as it is, and the app gets one of its own.

        Raises:
            Forbidden: the app is paused, a rule hides from it what it would store, or the namespace is not the caller's
                to write in.
            Invalid: a field is blank or too long, or has a line break.
            NotFound: the user or the app was erased meanwhile.
        """
        namespace = validation.name(new.namespace, "namespace", self._limits)
        fields = ((name, getattr(new, name)) for name in registrations.FIELDS)
        values = {name: value for name, value in fields if value is not None}
        for name, value in values.items():
            values[name] = self._intake.redacted(validation.line(value, name, self._limits.query, "limits.query"))
        caller.may_write(namespace)
        caller.may_read()
        await self._rates.save(caller, 1)
        await self._register(caller, namespace, values)
        if (project := await self._find(caller, namespace)) is None:
            raise no_project()
        return project

    @retry_on_conflict
    async def _register(self, caller: Caller, namespace: str, values: Mapping[str, str]) -> None:
        async with self._database.transaction() as tx:
            await refuse_paused(tx, {caller.app_id}, "register projects")
            try:
                id_ = await registrations.save(tx, caller, namespace, values)
            except exc.IntegrityError as error:
                if violated(error).startswith("fk_"):
                    raise NotFound("The user or app was erased a moment ago.", code="user_not_found") from error
                raise
            await refuse_unreadable(tx, caller, Project, id_)
            await audit_log.record(tx, caller, AuditAction.PROJECT_REGISTER, [id_])

    async def list(self, caller: Caller, like: str | None = None) -> ProjectList:
        """The projects that are registered, and the other namespaces in which the caller may read something.

        `like`: a name; if the caller may read nothing under it, only the project that it nearly names, otherwise none.

        Raises:
            Invalid: the name is invalid.
        """
        caller.may_read()
        await self._rates.search(caller)
        near = None if like is None else await self.near(caller, like, "like")
        async with self._database.transaction() as tx:
            projects = [] if like is not None and near is None else await _projects(tx, caller, near)
            await audit_log.record(tx, caller, AuditAction.PROJECT_LIST, detail={"projects": len(projects)})
        return ProjectList(projects)

    async def near(self, caller: Caller, name: str, field: str, others: Collection[str] = ()) -> str | None:
        """The project that is near a name under which the caller may read nothing. None if there is none.

        The rate limit counts the operation that the name is for. `field`: the argument that has the name.

        Raises:
            Invalid: the name is invalid.
        """
        name = validation.name(name, field, self._limits)
        if Scope.READ not in caller.principal.scopes:
            return None
        async with self._database.statement() as tx:
            return await spelling.near(tx, caller, name, others)

    async def _find(self, caller: Caller, namespace: str) -> RegisteredProject | None:
        async with self._database.statement() as tx:
            return next(iter(await _projects(tx, caller, namespace)), None)

    async def status(self, caller: Caller, namespace: str) -> ProjectStatus:
        """A project with its state, and the number of items that wait for their vector.

        Raises:
            NotFound: there is no such project, or the caller may read nothing of it.
        """
        caller.may_read()
        namespace = validation.name(namespace, "namespace", self._limits)
        await self._rates.search(caller)
        waiting = select(func.count()).select_from(OutboxEntry).where(OutboxEntry.user_id == caller.user_id)
        async with self._database.transaction() as tx:
            project = next(iter(await _projects(tx, caller, namespace)), None)
            if project is None:
                raise no_project()
            pending = await tx.scalar(waiting) or 0
            await audit_log.record(tx, caller, AuditAction.PROJECT_LIST, detail={"projects": 1})
        state = await self._states.find(caller, namespace)
        revision, reason = (None, None) if state is None else (state.revision, state.reason)
        return ProjectStatus(project, revision, reason, pending)

    @retry_on_conflict
    async def delete(self, caller: Caller, namespace: str) -> ProjectDeleted:
        """Soft-delete all memories, conversations, files and documents of a project, and forget its name.

        Each can be restored by itself. Only the user may.

        Raises:
            Forbidden: the caller is an app, or the namespace is not the caller's to write in.
            NotFound: there is no such project.
        """
        caller.must_be_owner("delete a project", everywhere=False)
        namespace = validation.name(namespace, "namespace", self._limits)
        caller.may_write(namespace)
        async with self._database.transaction() as tx:
            await refuse_if_paused(tx, caller, "delete projects")
            mine = (Memory.user_id == caller.user_id) & (Memory.namespace == namespace)
            gone = await changes.change_state(tx, caller, mine, State.DELETED)
            ids = [id_ for id_, _ in gone]
            active = Source.state == ACTIVE
            theirs = (Source.user_id == caller.user_id) & (Source.namespace == namespace) & active
            sources = await lifecycle.move(tx, caller, theirs, State.DELETED)
            row = delete(Project).where(Project.user_id == caller.user_id, Project.namespace == namespace)
            project_ids = (await tx.scalars(row.returning(Project.id))).all()
            if not project_ids and not ids and not sources.sources:
                raise no_project()
            if ids:
                await access_log.record(tx, caller, AccessType.DELETE, ids, {"operation": "delete_project"})
            detail = {"memories": len(ids), "sources": len(sources.sources)}
            await audit_log.record(tx, caller, AuditAction.PROJECT_DELETE, sources.sources, detail=detail)
        self._delivery.wake()
        return ProjectDeleted(namespace, len(ids), len(sources.passages))

    @retry_on_conflict
    async def move(self, caller: Caller, namespace: str, to: str, *, merge: bool = False) -> ProjectMoved:
        """Rename a project, or merge it into another one. Rules for the project apply to the new name.

        Only the user may.

        Raises:
            ConflictError: the other project exists and `merge` is false, or the two cannot be merged.
            Forbidden: the caller is an app, or a namespace is not the caller's to write in.
            Invalid: a name is invalid, or both are the same.
            NotFound: there is no such project.
        """
        caller.must_be_owner("move a project")
        namespace = validation.name(namespace, "namespace", self._limits)
        to = validation.name(to, "to", self._limits)
        if namespace == to:
            raise Invalid("to", "must be another name")
        caller.may_write(namespace)
        caller.may_write(to)
        async with self._database.long_transaction(moving.SECONDS) as tx:
            await refuse_if_paused(tx, caller, "move projects")
            moved = await moving.move(tx, caller, namespace, to, merge=merge)
            if moved is None:
                raise no_project()
            detail = {"memories": moved.memories, "passages": moved.passages, "merge": merge}
            await audit_log.record(tx, caller, AuditAction.PROJECT_MOVE, detail=detail)
        self._delivery.wake()
        return moved


def no_project() -> NotFound:
    """The error for a project that is unknown, or of which the caller may read nothing."""
    return NotFound("Project not found", code="project_not_found")


async def _projects(tx: Tx, caller: Caller, namespace: str | None = None) -> list[RegisteredProject]:
    """The projects that are registered or hold something, by namespace."""

    def within(rows: Any) -> ColumnElement[bool]:
        may_read = readable_by(caller, rows)
        return may_read if namespace is None else may_read & (rows.namespace == namespace)

    counted = dict[str, dict[str, int]]()
    memories = select(Memory.namespace, func.count()).where(within(Memory)).group_by(Memory.namespace)
    for name, count in await tx.execute(memories, caller.parameters):
        counted.setdefault(name, dict(_NOTHING))["memories"] = count
    sources = select(Source.namespace, Source.kind, func.count()).where(within(Source))
    for name, kind, count in await tx.execute(sources.group_by(Source.namespace, Source.kind), caller.parameters):
        counted.setdefault(name, dict(_NOTHING))[_PART[kind]] = count
    query = registrations.counting(caller)
    query = query if namespace is None else query.where(Project.namespace == namespace)
    rows = await tx.execute(query, caller.parameters)
    registered = {row.namespace: row for row in rows}
    projects = list[RegisteredProject]()
    for name in sorted(counted.keys() | registered.keys()):
        row = registered.get(name)
        fields = {field: getattr(row, field, None) for field in (*registrations.FIELDS, "updated_at")}
        projects.append(RegisteredProject(namespace=name, **fields, **counted.get(name, _NOTHING)))  # type: ignore[arg-type]
    return projects
