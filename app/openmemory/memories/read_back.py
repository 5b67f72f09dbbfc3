"""Read-back deduplication: a text that an app has just read from another app's memory is not stored again.

Otherwise an assistant that notes what it has just read would duplicate the memories of other apps, and each copy would
outlive its original.
"""

from __future__ import annotations

from functools import cache

from sqlalchemy import String, Uuid, bindparam, exists, func, literal_column, select
from sqlalchemy.orm import aliased

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.models import MemoryAccessLog
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.identity.principal import Scope
from openmemory.memories import changes
from openmemory.memories.models import ACTIVE, Memory
from openmemory.memories.schemas import CheckedMemory, Event, MemoryAdded

MINUTES = 60
"""For this many minutes after an app has read a memory, the app does not store the same text as its own memory."""

READ_BACK = "Not stored: this memory, which the app was shown a moment ago, says so already."


async def duplicate_of_read(tx: Tx, caller: Caller, new: CheckedMemory) -> MemoryAdded | None:
    """The memory of another app that is an exact duplicate of a new text and that the calling app has read, or None.

    Texts from the user themself are always stored, and so are texts with an expiry or an end of validity.
    """
    if caller.owner or new.ends or Scope.READ not in caller.principal.scopes:
        return None
    values = {"new_namespace": new.namespace, "new_hash": changes.text_hash(new.text)}
    rows = await statement(caller.default).rows(tx, caller.parameters | values)
    if not rows:
        return None
    [(id_,)] = rows
    await access_log.record(tx, caller, AccessType.SEARCH, [id_], {"part": "echo"})
    return MemoryAdded(id=id_, memory=new.text, event=Event.NONE, note=READ_BACK)


@cache
def statement(default: Default) -> CompiledStatement:
    """The id of a memory with a text that the app has read. Binds `caller.parameters`, `new_namespace`, `new_hash`.

    Joins the user's apps, of which there are few, because the index of active texts has the app before the text.
    """
    caller = Caller.anyone(owner=False, default=default)
    user, app = (bindparam(name, type_=Uuid) for name in ("caller_user_id", "caller_app_id"))
    since = func.now() - func.make_interval(0, 0, 0, 0, 0, literal_column(str(MINUTES)))
    read = exists().where(
        MemoryAccessLog.app_id == app, MemoryAccessLog.memory_id == Memory.id, MemoryAccessLog.accessed_at > since
    )
    own = aliased(Memory)
    own_duplicate = exists().where(
        own.user_id == user, own.namespace == bindparam("new_namespace", type_=String), own.app_id == app,
        own.hash == bindparam("new_hash", type_=String), own.state == ACTIVE,
    )  # fmt: skip
    query = (
        select(Memory.id)
        .join(App, App.id == Memory.app_id)
        .where(
            App.owner_id == user,
            App.id != app,
            Memory.user_id == user,
            Memory.namespace == bindparam("new_namespace", type_=String),
            Memory.hash == bindparam("new_hash", type_=String),
            readable_by(caller, Memory),
            read,
            ~own_duplicate,
        )
        .order_by(Memory.id)
        .limit(literal_column("1"))
    )
    return CompiledStatement(query, plain=True)
