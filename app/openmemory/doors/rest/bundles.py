"""REST endpoints for bundles: a project's memories, links and state, to share through a repository."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.doors.rest.http.caller import AskingApp, BodyUser, TheAsking, TheServices, UserId
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.projects.bundle_format import Bundle, BundleImported
from openmemory.services import VERSION

router = Router("/api/v1/bundles", "projects")


class BundleBody(BaseModel):
    """A bundle to import."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that imports it; left out: the credential's.")
    namespace: str = Field(description="The project that it is imported into.", examples=["acme/shop"])
    replace: bool = Field(
        default=False, description="Memories of earlier imports that the bundle does not have any more are deleted."
    )
    bundle: Bundle


_BUNDLE: dict[str, Any] = {
    "a bundle": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "bundle": {
                "manifest": {"source_repo_id": "om_5f2c9b7d1e3a4c60", "schema_version": 1},
                "memories": [
                    {"source_id": "m1", "title": "Deliveries retry for a minute.", "tags": ["outbox"]},
                    {"source_id": "m2", "title": "Restarts of Qdrant take three seconds."},
                ],
                "links": [{"from_id": "m2", "rel": "explains", "to_id": "m1"}],
                "state": {"goal": "Replace the queue"},
            },
        }
    }
}


@router.get("", responses=documented(403, 404))
async def export_bundle(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Annotated[str, Query(description="The project.")] = "default",
) -> Bundle:
    """Export the memories, links and state of a project, to share them. Only active memories are in it.

    Logs, rules and histories are not in it. The same rows give the same bundle.
    """
    return await services.bundles.export(await asking.as_owner_or_app(user_id, app), namespace, VERSION)


@router.post("", responses=documented(403, 404, 409, 413))
async def import_bundle(
    services: TheServices, asking: TheAsking, body: Annotated[BundleBody, Body(openapi_examples=_BUNDLE)]
) -> BundleImported:
    """Add the memories of a bundle, or change those that an earlier import from the same project brought.

    A second import of a bundle changes nothing. Memories of the project itself are never changed or deleted. If one
    memory is refused, nothing is stored.
    """
    caller = await asking.as_app(body.user_id, body.app)
    return await services.bundles.import_(caller, body.namespace, body.bundle, replace_all=body.replace)
