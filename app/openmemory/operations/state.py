"""The state of a project: one JSON object for each namespace, saved with a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import Project
from openmemory.projects.schemas import CheckpointSaved, NewCheckpoint, ProjectState, StateHistory

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/state"


@operation(
    "POST", f"{PATH}/checkpoint", command="state save", tool="mem_checkpoint", tag=TAG, speaker=Speaker.APP,
    errors=(403, 404, 409, 413), body="CheckpointBody",
    example={
        "user_id": "alice", "namespace": "acme/shop",
        "state": {"goal": "Replace the queue", "database": {"host": "db.internal", "port": 5432}},
        "reason": "The outbox replaces the queue.",
    },
)  # fmt: skip
async def save_state(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    state: Annotated[dict[str, Any], Field(description="The whole state, which replaces the one before.")],
    reason: Annotated[str, Field(description="Why, in a sentence.", examples=["The outbox replaces the queue."])],
    thread_id: Annotated[str | None, Field(description="The conversation in which it was decided.")] = None,
    expected_revision: Annotated[
        int | None,
        Field(description="409 unless the state has this revision; 0: unless there is none; left out: any."),
    ] = None,
    commit: Annotated[
        str | None,
        Field(description="The commit that is checked out, to which the reason belongs.", examples=["a" * 40]),
    ] = None,
) -> CheckpointSaved:
    """Save the state of a project, and remember the reason.

    The state is one JSON object, a memory of the kind `state`, which no search finds. The reason is a memory of the
    kind `checkpoint`. With `expected_revision`, two who save at the same time cannot overwrite each other.
    """
    checkpoint = NewCheckpoint(state, reason, namespace, thread_id, expected_revision, commit)
    return await services.states.checkpoint(caller, checkpoint)


@operation("GET", PATH, command="state show", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def read_state(services: Services, caller: Caller, *, namespace: Project = "default") -> ProjectState:
    """Show the state of a project."""
    return await services.states.read(caller, namespace)


@operation("GET", f"{PATH}/history", command="state history", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def state_history(services: Services, caller: Caller, *, namespace: Project = "default") -> StateHistory:
    """Show the last 100 revisions of a state, with what each changed."""
    return await services.states.history(caller, namespace)
