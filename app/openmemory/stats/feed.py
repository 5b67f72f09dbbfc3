"""The feed of a user: what came into their memory and what was read from it, newest first, from the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Integer,
    Text,
    Uuid,
    bindparam,
    column,
    func,
    literal_column,
    not_,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import aggregate_order_by

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.models import AuditEvent
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller, Default
from openmemory.memories import validation
from openmemory.memories.models import Memory
from openmemory.memories.repository import ALL_STATES
from openmemory.stats.schemas import FeedEntry, FeedPage

MAX_OBJECTS = 3
"""The memories of an event whose texts are shown."""

_BEGINNING = 300
"""The characters of a text that are shown."""

READ = (
    AuditAction.MEMORY_SEARCH, AuditAction.MEMORY_LIST, AuditAction.MEMORY_GET, AuditAction.MEMORY_EXPORT,
)  # fmt: skip
WRITES = (
    AuditAction.MEMORY_ADD, AuditAction.MEMORY_UPDATE, AuditAction.MEMORY_PAUSE, AuditAction.MEMORY_ARCHIVE,
    AuditAction.MEMORY_EXPIRE, AuditAction.MEMORY_DELETE, AuditAction.MEMORY_DELETE_ALL, AuditAction.MEMORY_RESTORE,
    AuditAction.MEMORY_IMPORT, AuditAction.MEMORY_ERASE,
)  # fmt: skip
KINDS: dict[str, Sequence[AuditAction]] = {"all": (*WRITES, *READ), "written": WRITES, "read": READ}
"""The events by which memories came in, those by which they were read, and both."""


class Feed:
    """Reads the feed. Only the user may, never an app. What the user reads themself is not in it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @staticmethod
    def events(what: Literal["all", "written", "read"]) -> Sequence[AuditAction]:
        """Returns the events of this kind."""
        return KINDS[what]

    async def page(
        self, caller: Caller, events: Sequence[AuditAction], *, before: int | None = None, limit: int = 50
    ) -> FeedPage:
        """Returns a page of these events.

        Raises:
            Forbidden: the caller is an app.
            Invalid: the limit is not from 1 to 100.
        """
        validation.between(limit, "limit", 1, 100)
        rows = await self._entries(caller, events, before=before or 2**63 - 1, after=0, limit=limit + 1)
        async with self._database.statement() as tx:
            await audit_log.record(tx, caller, AuditAction.AUDIT_READ)
        more = len(rows) > limit
        return FeedPage(entries=rows[:limit], next=rows[limit - 1].id if more else None)

    async def since(
        self, caller: Caller, events: Sequence[AuditAction], after: int, *, limit: int = 50
    ) -> list[FeedEntry]:
        """Returns the newest of these events with a larger id than `after`, newest first.

        Raises:
            Forbidden: the caller is an app.
        """
        rows = await self._entries(caller, events, before=2**63 - 1, after=after, limit=limit)
        if rows:
            async with self._database.statement() as tx:
                await audit_log.record(tx, caller, AuditAction.AUDIT_READ)
        return rows

    async def _entries(
        self, caller: Caller, events: Sequence[AuditAction], *, before: int, after: int, limit: int
    ) -> list[FeedEntry]:
        caller.must_be_owner("see what was written and read")
        caller.may_read()
        values = caller.parameters | {
            "events": list(events), "own": caller.app, "before": before, "after": after, "limit": limit,
        }  # fmt: skip
        async with self._database.statement() as tx:
            return [FeedEntry.model_validate(row) for row in await _statement(caller.default).rows(tx, values)]


@cache
def _statement(default: Default) -> CompiledStatement:
    owner = Caller.anyone(owner=True, default=default)
    ids = (
        func.unnest(literal_column(f"audit_events.objects[1:{MAX_OBJECTS}]", ARRAY(Uuid)))
        .table_valued(column("id", Uuid), with_ordinality="place", name="asked")
        .render_derived()
    )
    one = func.jsonb_build_object(
        literal_column("'id'"), Memory.id,
        literal_column("'text'"), func.left(Memory.content, literal_column(str(_BEGINNING))),
    )  # fmt: skip
    memories = (
        select(func.coalesce(func.jsonb_agg(aggregate_order_by(one, ids.c.place)), literal_column("'[]'::jsonb")))
        .select_from(ids)
        .join(Memory, Memory.id == ids.c.id)
        .where(readable_by(owner, Memory, states=ALL_STATES))
        .correlate(AuditEvent)
        .scalar_subquery()
    )
    name = func.coalesce(App.name, AuditEvent.detail["app"].astext)
    read = AuditEvent.event == func.any(literal_column(f"ARRAY[{', '.join(repr(str(event)) for event in READ)}]"))
    by_user = read & (AuditEvent.door == literal_column("'rest'")) & (name == bindparam("own", type_=Text))
    preview = func.coalesce(AuditEvent.detail.has_key(literal_column("'preview'")), literal_column("false"))
    newest = (
        select(
            AuditEvent.id, AuditEvent.at, AuditEvent.event, name.label("app_name"), AuditEvent.count,
            memories.label("memories"),
        )
        .outerjoin(App, App.id == AuditEvent.app_id)
        .where(
            AuditEvent.user_id == bindparam("caller_user_id", type_=Uuid),
            AuditEvent.id < bindparam("before", type_=BigInteger),
            AuditEvent.id > bindparam("after", type_=BigInteger),
            AuditEvent.event == func.any(bindparam("events", type_=ARRAY(Text))),
            AuditEvent.result == literal_column("'ok'"),
            AuditEvent.count > literal_column("0"),
            not_(or_(preview, func.coalesce(by_user, literal_column("false")))),
        )
        .order_by(AuditEvent.id.desc())
        .limit(bindparam("limit", type_=Integer))
    )  # fmt: skip
    return CompiledStatement(newest)
