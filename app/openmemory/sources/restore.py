"""Restores sources from an archive, after its memories."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text

from openmemory.access.restore import DERIVED
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
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
# An id that another user has is derived anew. A source that the app has goes on.
_SOURCES = text(
    f"""
    INSERT INTO sources (id, user_id, app_id, kind, namespace, locator, language, media_type, hash, bytes, title,
        summary, metadata, state, created_at, updated_at, closed_at, deleted_at, infer, captured, expires_at)
    SELECT CASE WHEN e.id IS NULL THEN i.id ELSE {DERIVED.format(id="i.id")} END, :user, i.app_target, i.kind,
        i.namespace, i.locator, i.language, i.media_type, i.hash, i.bytes, i.title, i.summary, i.metadata, i.state,
        i.created_at, i.updated_at, i.closed_at, i.deleted_at, i.infer,
        (SELECT count(*) FROM incoming_passages AS p WHERE p.source_id = i.id AND p.position <= i.captured),
        CASE WHEN i.kind = 'document' AND i.state = 'active'
            THEN (SELECT max(p.expires_at) FROM incoming_passages AS p WHERE p.source_id = i.id) END
    FROM incoming_sources AS i LEFT JOIN sources AS e ON e.id = i.id
    ORDER BY i.app_target, i.namespace, i.kind, i.locator
    ON CONFLICT (app_id, namespace, kind, locator) DO NOTHING
    """  # noqa: S608 - only constants are put in
)
_TARGETS = text(
    """
    UPDATE incoming_sources AS i SET target = s.id
    FROM sources AS s
    WHERE s.app_id = i.app_target AND s.namespace = i.namespace AND s.kind = i.kind AND s.locator = i.locator
    """
)
_LOCK = text("SELECT FROM sources WHERE id IN (SELECT target FROM incoming_sources) ORDER BY id FOR UPDATE")
# A message that is there already is left unchanged. Others follow the last one, in their order. A file that is there
# already is left unchanged as a whole, and so is a session. The index has memories and passages under their ids, so an
# id is one or the other.
_PASSAGES = text(
    f"""
    WITH made AS (
        INSERT INTO passages (id, source_id, user_id, app_id, namespace, thread_id, kind, position, external_id,
            speaker, heading, first_line, last_line, content, metadata, state, created_at, labels, symbols,
            expires_at)
        SELECT CASE WHEN e.id IS NULL THEN m.id ELSE {DERIVED.format(id="m.id")} END, s.id, s.user_id, s.app_id,
            s.namespace, CASE WHEN s.kind = 'conversation' THEN s.locator END, m.kind,
            s.length + row_number() OVER (PARTITION BY s.id ORDER BY m.position, m.place), m.external_id, m.role,
            m.heading, m.first_line, m.last_line, m.content, m.metadata, m.state, m.created_at, m.labels, m.symbols,
            m.expires_at
        FROM incoming_passages AS m
        JOIN incoming_sources AS t ON t.id = m.source_id
        JOIN sources AS s ON s.id = t.target AND (s.kind = 'conversation') = (m.kind IN ('turn', 'session'))
        LEFT JOIN LATERAL (
            SELECT p.id FROM passages AS p WHERE p.id = m.id UNION ALL SELECT o.id FROM memories AS o WHERE o.id = m.id
            LIMIT 1
        ) AS e ON true
        WHERE (m.kind = 'turn' OR s.length = 0) AND NOT EXISTS (SELECT FROM passages AS p
            WHERE p.source_id = s.id
            AND (p.id IN (m.id, {DERIVED.format(id="m.id")}) OR p.external_id = m.external_id))
        RETURNING id, source_id, user_id, position, state
    ), longer AS (
        UPDATE sources AS s SET length = n.length
        FROM (SELECT source_id, max(position) AS length FROM made GROUP BY source_id) AS n WHERE n.source_id = s.id
    ), entries AS (
        {outbox.ADD_ENTRIES.format(
            kind=f"'{ItemKind.PASSAGE.value}'", id="made.id", user="made.user_id",
            source="FROM made WHERE made.state = 'active' ORDER BY 2",
        )}
    )
    SELECT id FROM made ORDER BY id
    """  # noqa: S608 - as above
)  # fmt: skip
# Only vectors that models in use made from the text as it is now stored.
_VECTORS = text(
    f"""
    INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
    SELECT '{ItemKind.PASSAGE.value}', p.id, v.model, v.text_hash, v.vector, v.chunking
    FROM (SELECT DISTINCT ON (id, model) * FROM incoming_vectors) AS v
    JOIN incoming_passages AS m ON m.id = v.id
    JOIN passages AS p ON p.id IN (m.id, {DERIVED.format(id="m.id")}) AND p.user_id = :user AND p.hash = v.text_hash
    WHERE (v.model, v.dimension) IN (
        SELECT model, dimension FROM index_generations
        UNION SELECT * FROM unnest(CAST(:models AS text[]), CAST(:dimensions AS integer[])))
    ON CONFLICT (kind, id, model) DO NOTHING
    """  # noqa: S608 - as above
)


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
