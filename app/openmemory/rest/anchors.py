"""REST endpoints for anchors: the commits that memories belong to, compared with a checkout."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.projects.anchors import MAX_COMMITS
from openmemory.projects.schemas import AnchorList, AnchorReport
from openmemory.rest.caller import AskingApp, BodyUser, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/anchors", "projects")

_HEAD = "9fceb02d0ae598e95dc970b74767f19372d61af8"


class AnchorsBody(BaseModel):
    """A client's report about commits."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that reports; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")
    head: str = Field(description="The commit that is checked out.", examples=[_HEAD])
    reachable: list[str] = Field(
        default_factory=list, max_length=MAX_COMMITS, description="Commits in the history of `head`."
    )
    orphaned: list[str] = Field(default_factory=list, max_length=MAX_COMMITS, description="Commits that are not in it.")


_REPORT: dict[str, Any] = {
    "after a rebase": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "head": _HEAD,
            "orphaned": ["b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"],
        }
    }
}


@router.get("", responses=documented(403, 404))
async def list_anchors(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Annotated[str, Query(description="The project.")] = "default",
    head: Annotated[str, Query(description="The commit that is checked out.", examples=[_HEAD])],
) -> AnchorList:
    """List the commits that memories of a project belong to, and whether they are in the history of a checkout."""
    return await services.anchors.list(await asking.as_reader(user_id, app), namespace, head)


@router.post("", responses=documented(403, 404, 413))
async def report_anchors(
    services: TheServices, asking: TheAsking, new: Annotated[AnchorsBody, Body(openapi_examples=_REPORT)]
) -> AnchorReport:
    """Report which commits are in the history of a checkout. Context packs leave out the memories of the others.

    The service runs no Git: `openmemory context` and `openmemory mcp` compare the commits where the repository is.
    """
    caller = await asking.as_app(new.user_id, new.app)
    return await services.anchors.report(
        caller, new.namespace, new.head, reachable=new.reachable, orphaned=new.orphaned
    )
