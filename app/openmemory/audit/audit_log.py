"""The audit log: who did what, from where and when, and what was denied. Written in the transaction of the action.

It identifies memories by their ids only. Every read, write or change calls one of the functions here in its own
transaction; statements that read and log at once use `inserted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import ARRAY, CTE, Integer, String, Uuid, bindparam, cast, func, insert, literal_column, select, text
from sqlalchemy.dialects.postgresql import JSONB

from openmemory.access.models import AuditEvent
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal

NAMED = 1_000
"""The maximum number of ids that one event lists; `count` is the number of all."""


class AuditAction(StrEnum):
    """The type of an action. The values are stored."""

    MEMORY_ADD = "memory.add"
    MEMORY_SEARCH = "memory.search"
    MEMORY_LIST = "memory.list"
    MEMORY_GET = "memory.get"
    MEMORY_EXPORT = "memory.export"
    MEMORY_IMPORT = "memory.import"
    MEMORY_UPDATE = "memory.update"
    MEMORY_PAUSE = "memory.pause"
    MEMORY_ARCHIVE = "memory.archive"
    MEMORY_EXPIRE = "memory.expire"
    MEMORY_LINK = "memory.link"
    MEMORY_UNLINK = "memory.unlink"
    MEMORY_DELETE = "memory.delete"
    MEMORY_DELETE_ALL = "memory.delete_all"
    MEMORY_RESTORE = "memory.restore"
    MEMORY_ERASE = "memory.erase"
    MEMORY_KEEP_BOTH = "memory.keep_both"
    MEMORY_ACCESS_LOG = "memory.access_log"
    USER_ERASE = "user.erase"
    USER_GET = "user.get"
    USER_TIMEZONE = "user.timezone"
    CATEGORY_LIST = "category.list"
    CATEGORY_DESCRIBE = "category.describe"
    CATEGORY_FORGET = "category.forget"
    STATS_READ = "stats.read"
    APP_LIST = "app.list"
    APP_GET = "app.get"
    APP_PAUSE = "app.pause"
    APP_RESUME = "app.resume"
    GRANT_LIST = "grant.list"
    GRANT_EXPLAIN = "grant.explain"
    GRANT_CREATE = "grant.create"
    GRANT_REVOKE = "grant.revoke"
    KEY_LIST = "key.list"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    KEY_ROTATE = "key.rotate"
    CONFIG_READ = "config.read"
    CONFIG_CHANGE = "config.change"
    CONFIG_RESET = "config.reset"
    CONFIG_TEST = "config.test"
    CAPTURE_LIST = "capture.list"
    CAPTURE_GET = "capture.get"
    CAPTURE_ADD = "capture.add"
    CAPTURE_APPLY = "capture.apply"
    CAPTURE_IMPORT = "capture.import"
    CAPTURE_UNDO = "capture.undo"
    THREAD_ADD = "thread.add"
    THREAD_LIST = "thread.list"
    THREAD_READ = "thread.read"
    THREAD_CLOSE = "thread.close"
    THREAD_DELETE = "thread.delete"
    THREAD_EXPIRE = "thread.expire"
    THREAD_RESTORE = "thread.restore"
    THREAD_ERASE = "thread.erase"
    SESSION_SAVE = "session.save"
    SESSION_LIST = "session.list"
    SESSION_READ = "session.read"
    PROJECT_REGISTER = "project.register"
    PROJECT_LIST = "project.list"
    PROJECT_USAGE = "project.usage"
    PROJECT_ANCHORS = "project.anchors"
    PROJECT_SHARE = "project.share"
    PROJECT_IMPORT = "project.import"
    PROJECT_CHECK = "project.check"
    PROJECT_MOVE = "project.move"
    PROJECT_DELETE = "project.delete"
    SOURCE_LIST = "source.list"
    SOURCE_IMPORT = "source.import"
    FILE_PLAN = "file.plan"
    FILE_STORE = "file.store"
    FILE_REMOVE = "file.remove"
    FILE_LIST = "file.list"
    DOCUMENT_STORE = "document.store"
    DOCUMENT_LIST = "document.list"
    DOCUMENT_READ = "document.read"
    DOCUMENT_DOWNLOAD = "document.download"
    DOCUMENT_DELETE = "document.delete"
    DOCUMENT_RESTORE = "document.restore"
    DOCUMENT_ERASE = "document.erase"
    PASSAGE_SEARCH = "passage.search"
    POLICY_LIST = "policy.list"
    POLICY_CREATE = "policy.create"
    POLICY_DELETE = "policy.delete"
    AUDIT_READ = "audit.read"
    INDEX_SYNC = "index.sync"
    INSTALLATION_DECIDE = "installation.decide"
    ACCESS_DENIED = "access.denied"
    """A request that the credential does not allow, or about another's object; `result` is the error's code."""
    CREDENTIAL_REFUSED = "credential.refused"
    """A credential that is wrong, expired or revoked."""


_COLUMNS = (
    "event", "result", "principal", "principal_name", "door", "address", "request", "user_id", "app_id", "objects",
    "count", "detail",
)  # fmt: skip

_RECORD = CompiledStatement(
    text(f"""
INSERT INTO audit_events ({", ".join(_COLUMNS)})
VALUES (:audit_event, :audit_result, :audit_principal, :audit_principal_name, :audit_door, :audit_address,
        :audit_request, :audit_user_id, :audit_app_id, :audit_objects, :audit_count, CAST(:audit_detail AS jsonb))
RETURNING id
""").bindparams(  # noqa: S608 - only names of columns are put in
        bindparam("audit_objects", type_=ARRAY(Uuid)),
        bindparam("audit_user_id", type_=Uuid),
        bindparam("audit_app_id", type_=Uuid),
    ),
    plain=True,
)

OF_NEW = f"""
INSERT INTO audit_events ({", ".join(_COLUMNS)})
SELECT :audit_event, 'ok', :audit_principal, :audit_principal_name, :audit_door, CAST(:audit_address AS text),
       CAST(:audit_request AS text), :audit_user_id, :audit_app_id, (array_agg(id))[1:{NAMED}], count(*),
       CAST(:audit_detail AS jsonb)
FROM new HAVING count(*) > 0
"""  # noqa: S608 - as above
"""A part of a statement whose rows `new` are the created objects: one event about all of them."""


def parameters(
    caller: Caller | Principal,
    event: AuditAction,
    *,
    user_id: UUID | None = None,
    detail: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The parameters that the statements of this module bind. The event has the caller's user and app; a principal has
    none. If they do not exist, or the app is only previewed, the detail contains their names."""
    principal = caller.principal if isinstance(caller, Caller) else caller
    app_id = None
    if isinstance(caller, Caller):
        user_id, app_id = caller.known_user, None if caller.preview else caller.known_app
        named: dict[str, Any] = {} if user_id is not None else {"user": caller.user}
        named |= {} if app_id is not None else {"app": caller.app}
        named |= {"preview": True} if caller.preview else {}
        detail = {**(detail or {}), **named}
    return {
        "audit_event": event.value,
        "audit_principal": principal.id,
        "audit_principal_name": principal.name,
        "audit_door": principal.door.value,
        "audit_address": principal.address,
        "audit_request": principal.request,
        "audit_user_id": user_id,
        "audit_app_id": app_id,
        "audit_detail": orjson.dumps(detail).decode() if detail else None,
    }


async def record(
    tx: Tx,
    caller: Caller | Principal,
    event: AuditAction,
    objects: Sequence[UUID] = (),
    *,
    result: str = "ok",
    user_id: UUID | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Log one event. `objects`: its objects; `user_id`: their user, if a principal acts without a caller."""
    await _RECORD.rows(
        tx,
        parameters(caller, event, user_id=user_id, detail=detail)
        | {"audit_result": result, "audit_objects": list(objects[:NAMED]) or None, "audit_count": len(objects)},
    )


async def record_chosen(
    tx: Tx, caller: Caller, event: AuditAction, chosen: str, *, detail: Mapping[str, Any] | None = None
) -> None:
    """Log one event about the `id`s that the query `chosen` returns, however many there are."""
    statement = text(f"WITH new AS ({chosen}) {OF_NEW}")
    if (await tx.execute(statement, parameters(caller, event, detail=detail))).rowcount == 0:
        await record(tx, caller, event, detail=detail)


def inserted(rows: CTE, *, if_none: bool = True) -> CTE:
    """A part of a reading statement that logs one event about the `id`s of `rows`. `if_none`: also if there are none.
    Bind `parameters`."""
    named = literal_column(f"(array_agg(id))[1:{NAMED}]", ARRAY(Uuid))
    event = select(
        _text("audit_event"), literal_column("'ok'"), _text("audit_principal"), _text("audit_principal_name"),
        _text("audit_door"), _text("audit_address"), _text("audit_request"),
        bindparam("audit_user_id", type_=Uuid), bindparam("audit_app_id", type_=Uuid),
        named, cast(func.count(), Integer), cast(_text("audit_detail"), JSONB),
    ).select_from(rows)  # fmt: skip
    if not if_none:
        event = event.having(func.count() > 0)
    return insert(AuditEvent).from_select(list(_COLUMNS), event).cte("audited")


def _text(name: str) -> Any:
    return bindparam(name, type_=String)
