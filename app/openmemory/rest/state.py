"""REST endpoints for the state of a project: one JSON object for each namespace, saved with a reason."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.projects.schemas import CheckpointSaved, NewCheckpoint, ProjectState, StateHistory
from openmemory.rest.caller import AskingApp, BodyUser, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/state", "projects")

Project = Annotated[str, Query(description="The project.")]


class CheckpointBody(BaseModel):
    """A state to save, and why."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that saves it; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")
    state: dict[str, Any] = Field(description="The whole state, which replaces the one before.")
    reason: str = Field(description="Why, in a sentence.", examples=["The outbox replaces the queue."])
    thread_id: str | None = Field(default=None, description="The conversation in which it was decided.")
    expected_revision: int | None = Field(
        default=None, description="409 unless the state has this revision; 0: unless there is none; left out: any."
    )
    commit: str | None = Field(
        default=None, description="The commit that is checked out, to which the reason belongs.", examples=["a" * 40]
    )


_SAVED: dict[str, Any] = {
    "a state": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "state": {"goal": "Replace the queue", "database": {"host": "db.internal", "port": 5432}},
            "reason": "The outbox replaces the queue.",
        }
    }
}


@router.post("/checkpoint", responses=documented(403, 404, 409, 413))
async def save_state(
    services: TheServices, asking: TheAsking, new: Annotated[CheckpointBody, Body(openapi_examples=_SAVED)]
) -> CheckpointSaved:
    """Save the state of a project, and remember the reason.

    The state is one JSON object, a memory of the kind `state`, which no search finds. The reason is a memory of the
    kind `checkpoint`. With `expected_revision`, two who save at the same time cannot overwrite each other.
    """
    caller = await asking.as_app(new.user_id, new.app)
    checkpoint = NewCheckpoint(new.state, new.reason, new.namespace, new.thread_id, new.expected_revision, new.commit)
    return await services.states.checkpoint(caller, checkpoint)


@router.get("", responses=documented(403, 404))
async def read_state(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Project = "default",
) -> ProjectState:
    """Read the state of a project."""
    return await services.states.read(await asking.as_owner_or_app(user_id, app), namespace)


@router.get("/history", responses=documented(403, 404))
async def state_history(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Project = "default",
) -> StateHistory:
    """Show the last 100 revisions of a state, with what each changed."""
    return await services.states.history(await asking.as_owner_or_app(user_id, app), namespace)
