"""REST endpoints for projects: namespaces with a name and a repository."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path
from pydantic import BaseModel, ConfigDict, Field

from openmemory.projects.schemas import (
    CheckedProject,
    NewProject,
    ProjectDeleted,
    ProjectList,
    ProjectMoved,
    ProjectStatus,
    RegisteredProject,
)
from openmemory.rest.caller import AskingApp, BodyUser, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/projects", "projects")

Namespace = Annotated[str, Path(description="The project.", examples=["acme/shop"])]


class ProjectBody(BaseModel):
    """A project to register. What is left out stays as it is."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that registers it; left out: the credential's.")
    namespace: str = Field(examples=["acme/shop"])
    name: str | None = Field(default=None, description="Its name for people; left out: the namespace.")
    root: str | None = Field(default=None, description="Its folder, which is shown and never opened.")
    repo: str | None = Field(default=None, description="The address of its repository.")
    head: str | None = Field(default=None, description="The commit that is checked out.")
    branch: str | None = None


class MoveBody(BaseModel):
    """A project, and its new name."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    namespace: str = Field(description="The project.")
    to: str = Field(description="Its new name, or the project to merge it into.")
    merge: bool = Field(default=False, description="There may be something in the other project.")


class CheckBody(BaseModel):
    """A project to check."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    namespace: str = Field(description="The project.")
    repair: bool = Field(default=False, description="Repair what can be repaired.")


_REGISTER: dict[str, Any] = {
    "a project": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "name": "The shop",
            "repo": "git@github.com:acme/shop.git",
            "branch": "main",
        }
    }
}


@router.post("", responses=documented(403, 404, 413))
async def register_project(
    services: TheServices, asking: TheAsking, new: Annotated[ProjectBody, Body(openapi_examples=_REGISTER)]
) -> RegisteredProject:
    """Register a namespace as a project, or change what is known of it.

    A registration that a rule hides from the app stays as it is, and the app gets one of its own.
    """
    caller = await asking.as_app(new.user_id, new.app)
    given = new.model_dump(exclude={"user_id", "app"})
    return await services.projects.register(caller, NewProject(**given))


_MOVE: dict[str, Any] = {
    "another name": {"value": {"user_id": "alice", "namespace": "shop", "to": "acme/shop", "merge": True}}
}


@router.post("/actions/move", responses=documented(403, 404, 409, 413))
async def move_project(
    services: TheServices, asking: TheAsking, wanted: Annotated[MoveBody, Body(openapi_examples=_MOVE)]
) -> ProjectMoved:
    """Give a project another name, with the rules, policies and keys of the user that name it.

    With `merge` the other project may exist. Of two states, values of one key or files of one path that count, the
    newer one stays. Two conversations, sessions or documents of one name are refused, and so are rules that differ.
    Nothing is changed then. What may read the other project may read all of it. Only the user may do this.
    """
    caller = await asking.as_owner(wanted.user_id)
    return await services.projects.move(caller, wanted.namespace, wanted.to, merge=wanted.merge)


_CHECK: dict[str, Any] = {"a project": {"value": {"user_id": "alice", "namespace": "acme/shop", "repair": True}}}


@router.post("/actions/check", responses=documented(403, 404, 413))
async def check_project(
    services: TheServices, asking: TheAsking, wanted: Annotated[CheckBody, Body(openapi_examples=_CHECK)]
) -> CheckedProject:
    """Look for what cannot be read, is there twice, or refers to what is gone, and repair it if asked to.

    A repair saves the last state that could be read, archives older states and values of one app, and removes links to
    memories that are deleted. Only the user may do this.
    """
    caller = await asking.as_owner(wanted.user_id)
    return await services.checks.check(caller, wanted.namespace, repair=wanted.repair)


@router.get("", responses=documented(403, 404))
async def list_projects(
    services: TheServices, asking: TheAsking, *, user_id: UserId = None, app: AskingApp = None
) -> ProjectList:
    """List the projects that are registered, and the other namespaces that hold something."""
    return await services.projects.list(await asking.as_owner_or_app(user_id, app))


@router.get("/{namespace:path}", responses=documented(403, 404))
async def project_status(
    services: TheServices, asking: TheAsking, namespace: Namespace, *, user_id: UserId = None, app: AskingApp = None
) -> ProjectStatus:
    """Show a project with its state, and whether everything has its vector."""
    return await services.projects.status(await asking.as_owner_or_app(user_id, app), namespace)


@router.delete("/{namespace:path}", responses=documented(403, 404))
async def delete_project(
    services: TheServices, asking: TheAsking, namespace: Namespace, *, user_id: UserId = None
) -> ProjectDeleted:
    """Soft-delete everything in a project: its memories, conversations, files and documents.

    Each can be restored by itself.
    """
    return await services.projects.delete(await asking.as_owner(user_id), namespace)
