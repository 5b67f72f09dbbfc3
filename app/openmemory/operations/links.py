"""Links between memories."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import MemoryReference, Speaker, operation
from openmemory.operations.parameters import Message
from openmemory.projects.schemas import Linked, LinkList, LinkRemoved

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/links"

First = Annotated[UUID, MemoryReference(), Field(description="The first memory: its id, or its first characters.")]
Second = Annotated[UUID, MemoryReference(), Field(description="The second memory, likewise.")]
Relation = Annotated[str, Field(description="What the first is to the second.", examples=["fixes", "depends_on"])]


@operation(
    "POST", PATH, command="links add", tool="mem_link_memories", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 409),
    body="LinkBody", example={
        "user_id": "alice", "from_id": "8f14e45f-ceea-467f-a8c4-2b1c0d7d3a11", "rel": "fixes",
        "to_id": "45c48cce-2e2d-4fbd-aa1a-3c1e5b7c9d22",
    },
)  # fmt: skip
async def link_memories(services: Services, caller: Caller, *, from_id: First, rel: Relation, to_id: Second) -> Linked:
    """Link two memories. Links of one relation form no cycle, and show only to those who may read both ends."""
    return await services.links.link(caller, from_id, rel, to_id)


@operation("GET", PATH, command="links list", tool="mem_show", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_links(
    services: Services,
    caller: Caller,
    *,
    memory_id: Annotated[
        UUID,
        MemoryReference(),
        Field(description="The memory whose links are listed: its id, or its first characters."),
    ],
) -> LinkList:
    """List the links of a memory, oldest first."""
    return await services.links.of(caller, memory_id)


@operation("DELETE", PATH, command="links remove", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def unlink_memories(
    services: Services, caller: Caller, *, from_id: First, rel: Relation, to_id: Second
) -> LinkRemoved:
    """Remove a link."""
    await services.links.unlink(caller, from_id, rel, to_id)
    return LinkRemoved()


@operation(
    "POST", "/api/v1/memories/actions/supersede", command="supersede", tag="memories", speaker=Speaker.READER,
    errors=(403, 404, 409), body="SupersedeBody", example={
        "memory_id": "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e", "by": "0b6b1f5e-1c7d-4c39-8a51-7d0f4a2e9c11",
        "user_id": "alice",
    },
)  # fmt: skip
async def supersede_memory(
    services: Services,
    caller: Caller,
    *,
    memory_id: Annotated[
        UUID,
        MemoryReference(),
        Field(description="The memory that no longer holds: its id, or its first characters."),
    ],
    by: Annotated[UUID, MemoryReference(), Field(description="The memory that is true in its place, likewise.")],
) -> Message:
    """Archive a memory in whose place another one is true from now on. `superseded_by` of the first names it."""
    await services.links.supersede(caller, memory_id, by)
    return Message(message="Successfully superseded 1 memory")
