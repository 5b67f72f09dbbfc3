"""Permanent removal of memories and of users, the rest of what `openmemory.memories.changes` writes.

Most tables are erased by foreign keys. `openmemory.schema.registry` lists all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Uuid, and_, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access import rule_cache
from openmemory.access.models import AccessControl, App, User
from openmemory.database.engine import Tx
from openmemory.index.models import Embedding, ItemKind
from openmemory.index.sync import outbox
from openmemory.memories.models import Memory

_FORGET_CAPTURES = text("DELETE FROM captures WHERE memory_ids && :ids").bindparams(bindparam("ids", type_=ARRAY(Uuid)))
"""Captures contain the conversation and earlier texts, so they are deleted as well."""

_CATEGORIES_OF = text(
    """
    SELECT category_id FROM memory_categories WHERE user_id = :user
    UNION SELECT category_id FROM category_descriptions WHERE user_id = :user
    UNION SELECT criteria_id FROM archive_policies WHERE user_id = :user AND criteria_type = 'category'
    UNION SELECT object_id FROM access_controls
        WHERE user_id = :user AND object_type = 'category' AND object_id IS NOT NULL
    """
)
_LOCK_CATEGORIES = text(
    """
    SELECT id FROM categories WHERE id = ANY(:ids) AND description IS NULL ORDER BY id FOR UPDATE SKIP LOCKED
    """
)
_FORGET_CATEGORIES = text(
    """
    DELETE FROM categories AS c WHERE c.id = ANY(:ids)
    AND NOT EXISTS (SELECT FROM memory_categories AS m WHERE m.category_id = c.id)
    AND NOT EXISTS (SELECT FROM category_descriptions AS d WHERE d.category_id = c.id)
    AND NOT EXISTS (SELECT FROM archive_policies AS p WHERE p.criteria_type = 'category' AND p.criteria_id = c.id)
    AND NOT EXISTS (SELECT FROM access_controls AS r WHERE r.object_type = 'category' AND r.object_id = c.id)
    """
)
"""Removes categories that no user has any more: their names are words of the erased user."""


EraseSources = Callable[[Tx, UUID], Awaitable[Any]]
"""Removes what a user has besides memories: conversations, sessions, files and documents, with their vectors."""


async def erase(tx: Tx, ids: Sequence[UUID]) -> int:
    """Permanently remove memories: rows, texts, history, access log with query texts, vectors, rules about them."""
    owners = list(await tx.scalars(select(Memory.user_id).where(Memory.id == func.any(list(ids))).distinct()))
    await rule_cache.hold(tx, owners)
    await tx.execute(select(Memory.id).where(Memory.id == func.any(list(ids))).order_by(Memory.id).with_for_update())
    result = await tx.scalars(delete(Memory).where(Memory.id == func.any(list(ids))).returning(Memory.id))
    erased_ids = list(result)
    await tx.execute(_FORGET_CAPTURES, {"ids": erased_ids})
    await tx.execute(
        delete(Embedding).where(Embedding.kind == ItemKind.MEMORY.value, Embedding.id == func.any(erased_ids))
    )
    about = and_(AccessControl.object_type == "memory", AccessControl.object_id == func.any(erased_ids))
    if (await tx.execute(delete(AccessControl).where(about))).rowcount:
        await rule_cache.changed(tx, owners)
    await outbox.add_entries(tx, ItemKind.MEMORY, erased_ids)
    return len(erased_ids)


async def erase_user(tx: Tx, user_id: UUID, erase_sources: EraseSources) -> int:
    """Remove a user with all their data, including apps and rules. Returns the number of memories removed."""
    await tx.execute(select(User.id).where(User.id == user_id).with_for_update())
    ids = list(await tx.scalars(select(Memory.id).where(Memory.user_id == user_id)))
    categories = list(await tx.scalars(_CATEGORIES_OF, {"user": user_id}))
    count = await erase(tx, ids)
    await erase_sources(tx, user_id)
    await tx.execute(delete(App).where(App.owner_id == user_id))
    await tx.execute(delete(User).where(User.id == user_id))
    # Locked first: the next statement sees whatever refers to one of them meanwhile, or waits for it.
    unused_ids = list(await tx.scalars(_LOCK_CATEGORIES, {"ids": categories}))
    await tx.execute(_FORGET_CATEGORIES, {"ids": unused_ids})
    return count
