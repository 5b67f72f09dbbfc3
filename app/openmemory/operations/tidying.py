"""Use cases of decisions about memories: facts that disagree, near duplicates, and what a newer one may replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import MemoryReference, Speaker, operation
from openmemory.operations.parameters import PageNumber, PageSize
from openmemory.tidying.schemas import (
    ChangeUndone,
    ComparedMemory,
    ConflictList,
    ConflictView,
    Decided,
    DuplicateList,
    DuplicateView,
    FactChoice,
    FactView,
    ReplacementList,
    ReplacementView,
    SeenVersion,
)

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
REPLACEMENTS, CONFLICTS, DUPLICATES = "/api/v1/replacements", "/api/v1/conflicts", "/api/v1/duplicates"
_IDS = {"newer": "8f14e45f-ceea-467f-a8c4-2b1c0d7d3a11", "older": "45c48cce-2e2d-4fbd-aa1a-3c1e5b7c9d22"}

Newer = Annotated[UUID, MemoryReference(), Field(description="The newer memory: its id, or its first characters.")]
Older = Annotated[UUID, MemoryReference(), Field(description="The older memory, likewise.")]
Revision = Annotated[
    int | None,
    Field(description="The revision that was shown. If the memory has another one, the request is refused."),
]


@operation("GET", REPLACEMENTS, command="review", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_replacements(
    services: Services, caller: Caller, *, page: PageNumber = 1, size: PageSize = 20
) -> ReplacementList:
    """List the memories that a newer one may replace, in pairs. Nothing is replaced by itself."""
    pairs = await services.replacements.list(caller, page=page, size=size)
    items = [
        ReplacementView.model_construct(
            newer=ComparedMemory.of(pair.newer), older=ComparedMemory.of(pair.older), replaces=pair.replaces,
            because=list(pair.because),
        )
        for pair in pairs.items
    ]  # fmt: skip
    return ReplacementList.model_construct(items=items, total=pairs.total, page=page, size=size)


@operation(
    "POST", REPLACEMENTS, command="review", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409),
    body="ReplacementDecision", example={"user_id": "alice", **_IDS, "decision": "replace"},
)  # fmt: skip
async def decide_replacement(
    services: Services,
    caller: Caller,
    *,
    newer: Newer,
    older: Older,
    newer_revision: Revision = None,
    older_revision: Revision = None,
    decision: Annotated[
        Literal["replace", "both", "different"],
        Field(
            description="`replace`: the older one is archived, superseded by the newer. `both`: both hold, and are"
            " shown side by side. `different`: they are not about the same."
        ),
    ],
) -> Decided:
    """Decide about two memories. The pair is not listed again."""
    seen = SeenVersion(newer, newer_revision), SeenVersion(older, older_revision)
    if decision == "replace":
        action = await services.duplicates.merge(caller, *seen)
        return Decided(message="Superseded the older memory", action=action)
    await services.duplicates.keep(caller, *seen, decision=decision)
    return Decided(message="Kept both memories")


@operation(
    "GET",
    CONFLICTS,
    command="conflicts list",
    tool="list_conflicts",
    tag=TAG,
    speaker=Speaker.READER,
    errors=(403, 404),
)
async def list_conflicts(
    services: Services, caller: Caller, *, page: PageNumber = 1, size: PageSize = 20
) -> ConflictList:
    """List the facts that disagree: keys to which memories of one namespace give different values."""
    await services.rates.search(caller)
    conflicts = await services.conflicts.list(caller, page=page, size=size)
    items = [
        ConflictView.model_construct(
            key=one.key, namespace=one.namespace, more=one.more,
            facts=[
                FactView.model_construct(value=fact.value, alone=fact.alone, memory=ComparedMemory.of(fact.memory))
                for fact in one.facts
            ],
        )
        for one in conflicts.items
    ]  # fmt: skip
    return ConflictList.model_construct(items=items, total=conflicts.total, page=page, size=size)


@operation(
    "POST", CONFLICTS, command="conflicts decide", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409),
    example={"user_id": "alice", "key": "port", "keep": _IDS["newer"], "others": [_IDS["older"]]},
)  # fmt: skip
async def decide_conflict(
    services: Services,
    caller: Caller,
    *,
    key: Annotated[str, Field(description="The key about which they disagree.")],
    keep: Annotated[UUID, MemoryReference(), Field(description="The memory whose value holds.")],
    others: Annotated[list[UUID], MemoryReference(), Field(description="The other memories that were shown.")],
) -> Decided:
    """Keep one of the facts that disagree.

    The other memories are superseded by its memory. One that also says something else gets the value that holds.
    """
    choice = FactChoice(key, SeenVersion(keep, None), [SeenVersion(id_, None) for id_ in others])
    done = await services.conflicts.decide(caller, choice)
    message = f"Kept {key} = {done.value}: {done.superseded} superseded, {done.corrected} corrected"
    return Decided(message=message, action=done.action)


@operation("GET", DUPLICATES, command="duplicates list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_duplicates(
    services: Services,
    caller: Caller,
    *,
    after: Annotated[str, Field(description="`next` of the part before; empty: the newest memories.")] = "",
) -> DuplicateList:
    """List the memories that say nearly the same, in pairs, among a part of the user's memories."""
    duplicates = await services.duplicates.page(caller, after)
    items = [
        DuplicateView.model_construct(
            newer=ComparedMemory.of(pair.newer), older=ComparedMemory.of(pair.older), similarity=pair.similarity,
            says_more=pair.says_more,
        )
        for pair in duplicates.pairs
    ]  # fmt: skip
    following = None if duplicates.next is None else duplicates.next.text
    return DuplicateList.model_construct(
        items=items, looked_at=duplicates.looked_at, next=following, note=duplicates.note
    )


@operation(
    "POST", DUPLICATES, command="duplicates decide", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409),
    example={"user_id": "alice", **_IDS, "keep": "newer"},
)  # fmt: skip
async def decide_duplicate(
    services: Services,
    caller: Caller,
    *,
    newer: Newer,
    older: Older,
    newer_revision: Revision = None,
    older_revision: Revision = None,
    keep: Annotated[
        Literal["newer", "older", "both"],
        Field(description="The one that is kept; the other is archived, superseded by it."),
    ],
) -> Decided:
    """Keep one memory of two that say nearly the same, or both. Both are not listed again."""
    seen = SeenVersion(newer, newer_revision), SeenVersion(older, older_revision)
    if keep == "both":
        await services.duplicates.keep(caller, *seen)
        return Decided(message="Kept both memories")
    kept, other = seen if keep == "newer" else seen[::-1]
    action = await services.duplicates.merge(caller, kept, other)
    return Decided(message=f"Kept the {keep} memory", action=action)


@operation(
    "POST", "/api/v1/memories/actions/undo", command="undo", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409),
    example={"user_id": "alice", "action": "5f0c6b0e-6d2c-4b39-9b0f-0b7a5a1d2c3e"},
)  # fmt: skip
async def undo_change(
    services: Services,
    caller: Caller,
    *,
    action: Annotated[UUID, Field(description="The `action` that the answer to the change gave.")],
) -> ChangeUndone:
    """Undo a change of many memories or a decision, some minutes later at most.

    Memories that were changed since stay as they are.
    """
    undone = await services.bulk.undo(caller, action)
    return ChangeUndone(restored=undone.restored, kept=undone.kept)
