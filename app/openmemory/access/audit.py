"""Reads the audit log, and removes entries of both logs that are older than necessary."""

from __future__ import annotations

from sqlalchemy import Integer, bindparam, func, select, text

from openmemory.access.models import App, User
from openmemory.audit import audit_log
from openmemory.audit.models import AuditEvent
from openmemory.audit.schemas import AuditAction, AuditEntry, AuditPage, AuditQuery, LastExport
from openmemory.config.settings import AuditSettings
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal


class Audit:
    """Read access to the audit log."""

    def __init__(self, database: Database, settings: AuditSettings) -> None:
        self._database = database
        self._settings = settings

    async def read(self, who: Caller | Principal, filters: AuditQuery) -> AuditPage:
        """Returns events, newest first: of the caller's own user, or of everybody for an administrator.

        Raises:
            Forbidden: the caller is an app, or the principal is not an administrator.
        """
        which = []
        if isinstance(who, Caller):
            who.must_be_owner("see the audit log")
            who.may_read()
            which.append(AuditEvent.user_id == who.user_id)
        else:
            who.must_administer()
        if filters.events:
            which.append(AuditEvent.event == func.any(list(filters.events)))
        if filters.denied:
            which.append(AuditEvent.result != "ok")
        if filters.before is not None:
            which.append(AuditEvent.id < filters.before)
        if filters.since is not None:
            which.append(AuditEvent.at >= filters.since)
        query = (
            select(*AuditEvent.__table__.columns, User.user_id.label("user_name"), App.name.label("app_name"))
            .outerjoin(User, User.id == AuditEvent.user_id)
            .outerjoin(App, App.id == AuditEvent.app_id)
            .where(*which)
            .order_by(AuditEvent.id.desc())
            .limit(filters.limit + 1)
        )
        async with self._database.transaction() as tx:
            rows = (await tx.execute(query)).all()
            await audit_log.record(tx, who, AuditAction.AUDIT_READ)
        events = [AuditEntry.model_validate(row) for row in rows[: filters.limit]]
        return AuditPage(events=events, next=events[-1].id if len(rows) > filters.limit else None)

    async def last_export(self, caller: Caller) -> LastExport | None:
        """Returns when the caller's memories were last exported, and by whom. None: never.

        It returns nothing else of the log, so the log does not record it as a read.

        Raises:
            Forbidden: the caller is an app, or its credential may not read all of the user's data.
        """
        caller.must_be_owner("see when their memories were exported")
        caller.may_read()
        query = (
            select(AuditEvent.at, AuditEvent.principal_name)
            .where(AuditEvent.event == AuditAction.MEMORY_EXPORT, AuditEvent.user_id == caller.user_id)
            .order_by(AuditEvent.id.desc())
            .limit(1)
        )
        async with self._database.statement() as tx:
            row = (await tx.execute(query)).one_or_none()
        return None if row is None else LastExport(*row)

    async def prune(self) -> int:
        """Remove entries of both logs that are older than `audit.keep`, in batches so that nobody waits.

        Imported entries are kept for as long from the day of the import, whatever their age: an import of an
        installation of years must not lose its log an hour later.

        Returns the number of removed entries.
        """
        total = 0
        for statement in (_PRUNE_EVENTS, _PRUNE_ACCESSES, _PRUNE_IMPORTED):
            while True:
                async with self._database.statement() as tx:
                    values = {"days": self._settings.keep, "some": PRUNED_AT_ONCE}
                    count = (await tx.execute(statement, values)).rowcount
                total += count
                if count < PRUNED_AT_ONCE:
                    break
        return total


PRUNED_AT_ONCE = 5_000

_TYPES = (bindparam("days", type_=Integer), bindparam("some", type_=Integer))

_PRUNE_EVENTS = text("""
DELETE FROM audit_events WHERE id IN (
    SELECT id FROM (SELECT id, at FROM audit_events ORDER BY id LIMIT :some) AS oldest
    WHERE at < now() - make_interval(days => :days)
    FOR UPDATE SKIP LOCKED
)
""").bindparams(*_TYPES)

_PRUNE = """
DELETE FROM memory_access_logs WHERE ctid = ANY(ARRAY(
    SELECT ctid FROM memory_access_logs WHERE {since} < now() - make_interval(days => :days)
    LIMIT :some FOR UPDATE SKIP LOCKED
))
"""
# Each uses its own index, so that years of entries imported yesterday are not scanned at every run.
_PRUNE_ACCESSES = text(_PRUNE.format(since="imported_at IS NULL AND accessed_at")).bindparams(*_TYPES)
_PRUNE_IMPORTED = text(_PRUNE.format(since="imported_at IS NOT NULL AND imported_at")).bindparams(*_TYPES)
