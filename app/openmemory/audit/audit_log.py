"""The audit log: who did what, from where and when, and what was denied. Written in the transaction of the action.

It identifies memories by their ids only. Every read, write or change calls one of the functions here in its own
transaction; statements that read and log at once use `inserted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import ARRAY, CTE, Integer, String, Uuid, bindparam, cast, func, insert, literal_column, select, text
from sqlalchemy.dialects.postgresql import JSONB

from openmemory.audit.models import AuditEvent
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal

MAX_OBJECTS = 1_000
"""The maximum number of ids that one event lists; `count` is the number of all."""


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
       CAST(:audit_request AS text), :audit_user_id, :audit_app_id, (array_agg(id))[1:{MAX_OBJECTS}], count(*),
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
        names: dict[str, Any] = {} if user_id is not None else {"user": caller.user}
        names |= {} if app_id is not None else {"app": caller.app}
        names |= {"preview": True} if caller.preview else {}
        detail = {**(detail or {}), **names}
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
        | {"audit_result": result, "audit_objects": list(objects[:MAX_OBJECTS]) or None, "audit_count": len(objects)},
    )


async def record_chosen(
    tx: Tx, caller: Caller, event: AuditAction, query: str, *, detail: Mapping[str, Any] | None = None
) -> None:
    """Log one event about the `id`s that the `query` returns, however many there are."""
    statement = text(f"WITH new AS ({query}) {OF_NEW}")
    if (await tx.execute(statement, parameters(caller, event, detail=detail))).rowcount == 0:
        await record(tx, caller, event, detail=detail)


def inserted(rows: CTE, *, if_none: bool = True) -> CTE:
    """A part of a reading statement that logs one event about the `id`s of `rows`. `if_none`: also if there are none.
    Bind `parameters`."""
    ids = literal_column(f"(array_agg(id))[1:{MAX_OBJECTS}]", ARRAY(Uuid))
    event = select(
        _text("audit_event"), literal_column("'ok'"), _text("audit_principal"), _text("audit_principal_name"),
        _text("audit_door"), _text("audit_address"), _text("audit_request"),
        bindparam("audit_user_id", type_=Uuid), bindparam("audit_app_id", type_=Uuid),
        ids, cast(func.count(), Integer), cast(_text("audit_detail"), JSONB),
    ).select_from(rows)  # fmt: skip
    if not if_none:
        event = event.having(func.count() > 0)
    return insert(AuditEvent).from_select(list(_COLUMNS), event).cte("audited")


def _text(name: str) -> Any:
    return bindparam(name, type_=String)
