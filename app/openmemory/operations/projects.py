"""Use cases of projects: namespaces with a name and a repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.projects.schemas import (
    CheckedProject,
    NewProject,
    ProjectDeleted,
    ProjectList,
    ProjectMoved,
    ProjectStatus,
    RegisteredProject,
)

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/projects"

Named = Annotated[str, Field(description="The project.", examples=["acme/shop"])]


@operation(
    "POST", PATH, command="projects register", tool="project_register", tag=TAG, speaker=Speaker.APP,
    errors=(403, 404, 413), body="ProjectBody",
    example={
        "user_id": "alice", "namespace": "acme/shop", "name": "The shop", "repo": "git@github.com:acme/shop.git",
        "branch": "main",
    },
)  # fmt: skip
async def register_project(
    services: Services,
    caller: Caller,
    *,
    namespace: Named,
    name: Annotated[str | None, Field(description="Its name for people; left out: the namespace.")] = None,
    root: Annotated[str | None, Field(description="Its folder, which is shown and never opened.")] = None,
    repo: Annotated[str | None, Field(description="The address of its repository.")] = None,
    head: Annotated[str | None, Field(description="The commit that is checked out.")] = None,
    branch: Annotated[str | None, Field(description="The branch that is checked out.")] = None,
) -> RegisteredProject:
    """Register a namespace as a project, or change what is known of it. What is left out stays as it is.

    A registration that a rule hides from the app stays as it is, and the app gets one of its own.
    """
    return await services.projects.register(caller, NewProject(namespace, name, root, repo, head, branch))


@operation(
    "POST", f"{PATH}/actions/move", command="projects rename", tag=TAG, speaker=Speaker.OWNER,
    errors=(403, 404, 409, 413), body="MoveBody",
    example={"user_id": "alice", "namespace": "shop", "to": "acme/shop", "merge": True},
)  # fmt: skip
async def move_project(
    services: Services,
    caller: Caller,
    *,
    namespace: Named,
    to: Annotated[str, Field(description="Its new name, or the project to merge it into.")],
    merge: Annotated[bool, Field(description="There may be something in the other project.")] = False,
) -> ProjectMoved:
    """Give a project another name, with the rules, policies and keys of the user that name it.

    With `merge` the other project may exist. Of two states, values of one key or files of one path that count, the
    newer one stays. Two conversations or documents of one name and app, or sessions of one number, are refused, and
    so are rules that differ.
    Nothing is changed then. What may read the other project may read all of it. Only the user may do this.
    """
    return await services.projects.move(caller, namespace, to, merge=merge)


@operation(
    "POST", f"{PATH}/actions/check", command="projects doctor", tag=TAG, speaker=Speaker.OWNER,
    errors=(403, 404, 413), body="CheckBody", example={"user_id": "alice", "namespace": "acme/shop", "repair": True},
)  # fmt: skip
async def check_project(
    services: Services,
    caller: Caller,
    *,
    namespace: Named,
    repair: Annotated[bool, Field(description="Repair what can be repaired.")] = False,
) -> CheckedProject:
    """Look for what cannot be read, is there twice, or refers to what is gone, and repair it if asked to.

    A repair saves the last state that could be read, archives older states and values of one app, and removes links to
    memories that are deleted. Only the user may do this.
    """
    return await services.checks.check(caller, namespace, repair=repair)


@operation(
    "GET", PATH, command="projects list", tool="project_list", tag=TAG, speaker=Speaker.READER, errors=(403, 404)
)
async def list_projects(
    services: Services,
    caller: Caller,
    *,
    like: Annotated[
        str | None,
        Field(description="Only the project that this name nearly names; none if something is known under the name."),
    ] = None,
) -> ProjectList:
    """List the projects that are registered, and the other namespaces that hold something."""
    return await services.projects.list(caller, like)


@operation(
    "GET", f"{PATH}/{{namespace:path}}", command="projects show", tool="project_status", tag=TAG,
    speaker=Speaker.READER, errors=(403, 404),
)  # fmt: skip
async def project_status(services: Services, caller: Caller, *, namespace: Named) -> ProjectStatus:
    """Show a project with its state, and whether everything has its vector."""
    return await services.projects.status(caller, namespace)


@operation(
    "DELETE", f"{PATH}/{{namespace:path}}", command="projects delete", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404)
)
async def delete_project(services: Services, caller: Caller, *, namespace: Named) -> ProjectDeleted:
    """Soft-delete everything in a project: its memories, conversations, files and documents.

    Each can be restored by itself.
    """
    return await services.projects.delete(caller, namespace)
