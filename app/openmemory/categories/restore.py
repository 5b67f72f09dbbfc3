"""Imports a user's category descriptions from an archive."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.categories import requests
from openmemory.categories.descriptions import OWN
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller

_TO_TELL = text("ALTER TABLE incoming_categories ADD problem text")
_LIMIT = text(load_sql(__name__, "limit"))
_ADD = text(
    """
    INSERT INTO category_descriptions (user_id, category_id, description, created_at, updated_at)
    SELECT :user, target, own_description, own_created_at, own_updated_at FROM incoming_categories
    WHERE problem = '' ORDER BY place
    """
)


async def restore_descriptions(tx: Tx, caller: Caller) -> int:
    """Import the descriptions that the user does not have yet. Returns their number.

    The categories must be resolved before, and the user row locked, as in every transaction that describes categories.
    """
    await tx.execute(_TO_TELL)
    await tx.execute(_LIMIT, {"user": caller.user_id, "number": OWN})
    taken = (await tx.execute(_ADD, {"user": caller.user_id})).rowcount
    if taken:
        await requests.request_reclassification(tx, caller.user_id)
    return taken
