"""Preview of category assignments. Reads the memories that the service would process, and changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import and_, exists, func, literal_column, or_, select, true

from openmemory.access.readable import readable_by
from openmemory.categories.classifier import Choice
from openmemory.categories.schemas import MAX_CHARACTERS, Preview, PreviewItem, WouldBe
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.index.models import Embedding, ItemKind
from openmemory.memories.models import Memory, MemoryCategory, PendingCategorization, ReclassificationRequest
from openmemory.memories.repository import CATEGORY_NAMES, KEPT_STATES

_NEVER: Any = literal_column("'infinity'::timestamptz")


async def read(tx: Tx, caller: Caller, model: str, *, again: bool, limit: int) -> tuple[Sequence[Any], int]:
    """The newest memories of the user that would be processed, with their vectors, and their total number.

    Includes processed memories if `again` is set or a new assignment was requested. Excludes deleted memories.
    """
    by_client = exists().where(MemoryCategory.memory_id == Memory.id, ~MemoryCategory.automatic)
    waiting = exists().where(PendingCategorization.memory_id == Memory.id, PendingCategorization.due_at < _NEVER)
    closed = exists().where(PendingCategorization.memory_id == Memory.id, PendingCategorization.due_at == _NEVER)
    requested = exists().where(ReclassificationRequest.user_id == caller.user_id)
    which = and_(
        Memory.user_id == caller.user_id, readable_by(caller, Memory, states=KEPT_STATES), ~by_client, ~closed,
        true() if again else or_(waiting, requested),
    )  # fmt: skip
    of_text = and_(
        Embedding.kind == ItemKind.MEMORY, Embedding.id == Memory.id, Embedding.model == model,
        Embedding.text_hash == Memory.hash,
    )  # fmt: skip
    total = await tx.scalar(select(func.count()).select_from(Memory).where(which), caller.parameters) or 0
    content, now = func.left(Memory.content, MAX_CHARACTERS).label("content"), CATEGORY_NAMES.label("now")
    query = (
        select(Memory.id, content, Embedding.vector, now)
        .outerjoin(Embedding, of_text)
        .where(which)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(limit)
    )
    return (await tx.execute(query, caller.parameters)).all(), total


def build_preview(rows: Sequence[Any], total: int, choices: Mapping[UUID, Sequence[Choice]]) -> Preview:
    """The preview of the rows, with the chosen categories of those that have a vector."""
    items = [
        PreviewItem(
            memory_id=row.id,
            memory=row.content,
            categories=[
                WouldBe(name=each.name, confidence=round(each.confidence, 3)) for each in choices.get(row.id, ())
            ],
            now=sorted(row.now),
            ready=row.id in choices,
        )
        for row in rows
    ]
    return Preview(items=items, total=total)
