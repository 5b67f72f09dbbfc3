"""Restores sources from an archive, after its memories."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text

from openmemory.access.restore import DERIVED
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller
from openmemory.index.sync import outbox

_TO_FIND = (
    "CREATE INDEX ON incoming_passages (source_id)",
    "ALTER TABLE incoming_sources ADD target uuid, ADD app_target uuid",
)
_APPS = text(
    """
    UPDATE incoming_sources AS i SET app_target = coalesce(a.target, :app)
    FROM incoming_sources AS s LEFT JOIN incoming_apps AS a ON a.id = s.app_id WHERE s.id = i.id
    """
)
_SOURCES = text(load_sql(__name__, "sources", derived_id=DERIVED.format(id="i.id")))
_TARGETS = text(
    """
    UPDATE incoming_sources AS i SET target = s.id
    FROM sources AS s
    WHERE s.app_id = i.app_target AND s.namespace = i.namespace AND s.kind = i.kind AND s.locator = i.locator
    """
)
_LOCK = text("SELECT FROM sources WHERE id IN (SELECT target FROM incoming_sources) ORDER BY id FOR UPDATE")
_ADD_ENTRIES = outbox.ADD_ENTRIES.format(
    kind="'passage'",
    id="made.id",
    user="made.user_id",
    source="FROM made WHERE made.state = 'active' ORDER BY 2",
)
_PASSAGES = text(load_sql(__name__, "passages", derived_id=DERIVED.format(id="m.id"), entries=_ADD_ENTRIES))
_VECTORS = text(load_sql(__name__, "vectors", derived_id=DERIVED.format(id="m.id")))


async def restore_sources(tx: Tx, caller: Caller, *, models: Sequence[tuple[str, int]]) -> int:
    """Adds the passages that do not exist yet, with their vectors. Returns their number.

    The apps must have been restored before. `models`: the embedding models in use with their dimensions.
    """
    values = {"user": caller.user_id, "app": caller.app_id}
    for statement in _TO_FIND:
        await tx.execute(text(statement))
    await tx.execute(_APPS, values)
    await tx.execute(_SOURCES, values)
    await tx.execute(_TARGETS)
    await tx.execute(_LOCK)
    added = list(await tx.scalars(_PASSAGES, values))
    if added:
        in_use = {"models": [name for name, _ in models], "dimensions": [size for _, size in models]}
        await tx.execute(_VECTORS, values | in_use)
        await audit_log.record(tx, caller, AuditAction.SOURCE_IMPORT, added)
    return len(added)
