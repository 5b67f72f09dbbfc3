"""Restores captures from an archive, after its memories."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.access.restore import DERIVED
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller

_TO_FIND = (
    "CREATE INDEX ON incoming_capture_steps (capture_id)",
    """
    ALTER TABLE incoming_captures
        ADD target uuid, ADD app_target uuid, ADD known boolean DEFAULT false, ADD problem text
    """,
    """
    ALTER TABLE incoming_capture_steps
        ADD memory_target uuid, ADD superseded_target uuid, ADD superseded_by_target uuid
    """,
)
_TARGET = """coalesce(
    (SELECT r.target FROM restored AS r WHERE r.id = s.{name}),
    (SELECT m.id FROM memories AS m WHERE m.id = s.{name} AND m.user_id = :user))"""
_FIND_MEMORIES = text(
    f"""
    UPDATE incoming_capture_steps AS s SET memory_target = {_TARGET.format(name="memory_id")},
        superseded_target = {_TARGET.format(name="superseded_id")},
        superseded_by_target = {_TARGET.format(name="superseded_by")}
    """  # noqa: S608 - only constants are put in
)
# A capture that already exists is left unchanged: the archive cannot know what happened to it here.
_FIND = text(
    f"""
    UPDATE incoming_captures AS i SET target = now_called.id, app_target = coalesce(a.target, :app),
        known = EXISTS (SELECT FROM captures AS k WHERE k.id = now_called.id)
    FROM incoming_captures AS c
    LEFT JOIN incoming_apps AS a ON a.id = c.app_id
    LEFT JOIN captures AS e ON e.id = c.id AND e.user_id <> :user
    CROSS JOIN LATERAL (SELECT CASE WHEN e.id IS NULL THEN c.id ELSE {DERIVED.format(id="c.id")} END AS id)
        AS now_called
    WHERE c.id = i.id
    """  # noqa: S608 - as above
)
_PROBLEMS = text(load_sql(__name__, "problems"))
_STEPS = """
    coalesce((
        SELECT jsonb_agg({step} ORDER BY s.number) FROM incoming_capture_steps AS s
        WHERE s.capture_id = i.id AND s.kind = '{kind}'
    ), '[]')
"""
_OPERATIONS = _STEPS.format(
    kind="operation",
    step="""
        s.body || jsonb_build_object('id', s.memory_target)
        || CASE WHEN s.superseded_id IS NULL THEN '{}' ELSE jsonb_build_object('superseded_id', s.superseded_target) END
        || CASE WHEN s.body -> 'before' IS NULL THEN '{}' ELSE jsonb_build_object('before',
            (s.body -> 'before') || jsonb_build_object('superseded_by', s.superseded_by_target)) END""",
)
_REFUSED = _STEPS.format(
    kind="refused",
    step="""
        s.body || CASE WHEN s.memory_target IS NULL THEN '{}' ELSE jsonb_build_object('id', s.memory_target) END""",
)
_ADD = text(load_sql(__name__, "add", operations=_OPERATIONS, refused=_REFUSED))
_NOT_TAKEN = text("SELECT id, problem FROM incoming_captures WHERE problem IS NOT NULL ORDER BY place LIMIT :most")


async def restore_captures(tx: Tx, caller: Caller, most: int) -> tuple[int, list[tuple[str, str, str]]]:
    """Adds the captures that do not exist yet. Returns their number, and the rejected captures with the reasons.

    The memories and apps must have been restored before. The worker processes waiting captures as if they were new.
    """
    values = {"user": caller.user_id, "app": caller.app_id}
    for statement in _TO_FIND:
        await tx.execute(text(statement))
    await tx.execute(_FIND_MEMORIES, values)
    await tx.execute(_FIND, values)
    await tx.execute(_PROBLEMS)
    added = list(await tx.scalars(_ADD, values))
    if added:
        await audit_log.record(tx, caller, AuditAction.CAPTURE_IMPORT, added)
    refused = await tx.execute(_NOT_TAKEN, {"most": most})
    return len(added), [("capture", str(row.id), row.problem) for row in refused]
