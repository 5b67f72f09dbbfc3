"""Anchors: the commits that memories belong to, compared with a checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import Project
from openmemory.projects.schemas import MAX_COMMITS, AnchorList, AnchorReport

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/anchors"

_HEAD = "9fceb02d0ae598e95dc970b74767f19372d61af8"

Head = Annotated[str, Field(description="The commit that is checked out.", examples=[_HEAD])]


@operation("GET", PATH, command="projects anchors", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_anchors(services: Services, caller: Caller, *, namespace: Project = "default", head: Head) -> AnchorList:
    """List the commits that memories of a project belong to, and whether they are in the history of a checkout."""
    return await services.anchors.list(caller, namespace, head)


@operation(
    "POST", PATH, tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="AnchorsBody",
    example={
        "user_id": "alice", "namespace": "acme/shop", "head": _HEAD,
        "orphaned": ["b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"],
    },
)  # fmt: skip
async def report_anchors(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    head: Head,
    reachable: Annotated[
        tuple[str, ...], Field(max_length=MAX_COMMITS, description="Commits in the history of `head`.")
    ] = (),
    orphaned: Annotated[tuple[str, ...], Field(max_length=MAX_COMMITS, description="Commits that are not in it.")] = (),
) -> AnchorReport:
    """Report which commits are in the history of a checkout. Context packs leave out the memories of the others.

    The service runs no Git: `openmemory context` and `openmemory mcp` compare the commits where the repository is.
    """
    return await services.anchors.report(caller, namespace, head, reachable=reachable, orphaned=orphaned)
