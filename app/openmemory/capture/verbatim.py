"""Memories that hold a text verbatim while the language model cannot read it, and the facts that later replace them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from openmemory.access.apps import refuse_if_paused
from openmemory.access.readable import readable_by
from openmemory.capture.applying import Applying, operation
from openmemory.capture.schemas import Turn
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.lifecycle import superseding
from openmemory.memories.models import IS_ACTIVE, Memory
from openmemory.memories.schemas import Event


def texts(content: str | Sequence[Turn], limit: int) -> list[str]:
    """The input as texts of at most `limit` characters: a conversation is cut between its messages."""
    if isinstance(content, str):
        return [content]
    parts: list[str] = []
    for turn in content:
        line = f"{turn.role}: {turn.content}"
        line = line if len(line) <= limit else turn.content
        if parts and len(parts[-1]) + 1 + len(line) <= limit:
            parts[-1] += f"\n{line}"
        else:
            parts.append(line)
    return parts


async def store(applying: Applying, parts: Sequence[str]) -> list[dict[str, Any]]:
    """Stores texts as memories. Returns the operations.

    Raises:
        Forbidden: the app is paused.
        Invalid: a text may not be stored any more.
        NotFound: the user or app was erased.
    """
    await refuse_if_paused(applying.tx, applying.caller)
    news = [applying.intake.created(replace(applying.like, text=part)) for part in parts]
    added = await changes.add(applying.tx, applying.caller, news, {applying.caller.app: applying.caller.app_id})
    return [operation(each.event, each.id, each.memory, revision=1) for each in added]


def ids(operations: Sequence[dict[str, Any]]) -> tuple[UUID, ...]:
    """The memories that hold the text of a capture from which no facts were extracted yet."""
    return tuple(UUID(each["id"]) for each in operations if each["event"] == Event.ADD)


async def untouched(tx: Tx, caller: Caller, operations: Sequence[dict[str, Any]]) -> bool:
    """Locks these memories. Returns False if one of them was changed, hidden or removed since."""
    revisions = {UUID(each["id"]): each["revision"] for each in operations if each["event"] == Event.ADD}
    query = (
        select(Memory.id, Memory.revision)
        .where(Memory.id == func.any(list(revisions)), IS_ACTIVE, readable_by(caller, Memory))
        .order_by(Memory.id)
        .with_for_update(key_share=True)
    )
    rows = (await tx.execute(query, caller.parameters)).all() if revisions else []
    return len(rows) == len(revisions) and all(row.revision == revisions[row.id] for row in rows)


async def superseded(
    tx: Tx, caller: Caller, before: Sequence[dict[str, Any]], facts: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Replaces the memories of `before`, which `untouched` has locked, by the facts. Returns all operations.

    A memory stays if no fact was found, or if it is the fact.
    """
    fact_ids = {each["id"] for each in facts}
    follower = next((each for each in facts if each["event"] != Event.DELETE), None)
    stays = [each for each in before if each["event"] == Event.ADD and (follower is None or each["id"] in fact_ids)]
    stay_ids = {each["id"] for each in stays}
    operations = stays + [each for each in facts if each["id"] not in stay_ids or each["event"] != Event.NONE]
    for each in before:
        if each["event"] != Event.ADD or each["id"] in stay_ids or follower is None:
            continue
        await superseding.supersede(tx, caller, UUID(each["id"]), UUID(follower["id"]))
        unmade = {"content": each["memory"], "metadata": {}, "categories": [], "revision": each["revision"],
                  "state": "active", "valid_until": None, "superseded_by": None}  # fmt: skip
        more = {"superseded_id": each["id"], "previous_memory": each["memory"], "before": unmade}
        entry = operation(Event.SUPERSEDE, UUID(follower["id"]), follower["memory"], revision=follower["revision"])
        operations.append(entry | more | {"added": False, "verbatim": True})
    return operations
