"""Rewrites an existing memory with a new text, its metadata and its categories."""

from __future__ import annotations

import logging
from typing import Any

from sqlalchemy import ColumnElement, and_, func, literal_column

from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Tx
from openmemory.errors import ConflictError, Invalid
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.intake import Intake
from openmemory.memories.models import Memory
from openmemory.memories.schemas import CheckedMemory, Expiry, MemoryUpdate

log = logging.getLogger(__name__)


def rewritable(caller: Caller, namespace: Any, kind: Any, key: Any) -> ColumnElement[bool]:
    """The memories that a text of this namespace, kind and key may rewrite. Execute with `caller.parameters`."""
    same = Memory.namespace == namespace, Memory.kind == kind, Memory.key.is_not_distinct_from(key)
    return and_(is_rewritable(caller), *same)


def is_rewritable(caller: Caller) -> ColumnElement[bool]:
    """The memories that a text may rewrite if its namespace, kind and key are theirs.

    Excludes memories that hold for a time only, and those flagged as prompt injection.
    """
    return and_(
        readable_by(caller, Memory),
        Memory.expires_at.is_(None),
        Memory.valid_from.is_(None),
        Memory.valid_until.is_(None),
        func.cardinality(Memory.labels) == literal_column("0"),
    )


async def complete(
    tx: Tx,
    caller: Caller,
    row: Any,
    new: CheckedMemory,
    intake: Intake,
    *,
    logged: dict[str, Any] | None = None,
    replaces: bool = False,
) -> bool:
    """Give a memory the new text, and add the new metadata and categories to it.

    `row` holds the id, metadata and categories of the locked memory. `logged`: additional data for the access log.
    `replaces`: the categories, the kind and the expiry become those of the new text.
    Returns False if that is not possible, because the result is too large or has an active exact duplicate.
    """
    try:
        change = intake.changed(
            MemoryUpdate(
                new.text,
                metadata={**row.metadata, **new.metadata},
                categories=new.categories if replaces else tuple(dict.fromkeys((*row.categories, *new.categories))),
                expiry=Expiry(new.expires_at) if replaces else None,
                kind=new.kind if replaces else None,
            )
        )
        async with tx.begin_nested():
            await changes.update_text(tx, caller, Memory.id == row.id, change, intake.labels)
    except (Invalid, ConflictError) as error:
        log.debug("not completed: %s", error)
        return False
    await access_log.record(tx, caller, AccessType.UPDATE, [row.id], logged)
    return True
