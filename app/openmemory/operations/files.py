"""Use cases of files: a client reads a folder, and the service keeps what it read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize, Project
from openmemory.sources.schemas import FilePage, FilePlan, FileSeen, FilesFinished, Rename

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "files"
PATH = "/api/v1/files"


@operation("GET", PATH, command="files list", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_files(
    services: Services,
    caller: Caller,
    *,
    namespace: OnlyProjects = (),
    path: Annotated[str, Field(description="Only files whose path begins so.")] = "",
    page: PageNumber = 1,
    size: PageSize = 50,
) -> FilePage:
    """List files, by path."""
    return await services.files.list(caller, namespaces=namespace, below=path, page=page, size=size)


@operation(
    "POST", f"{PATH}/plan", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="PlanBody",
    examples={
        "a folder": {
            "user_id": "alice",
            "namespace": "webshop",
            "files": [
                {"path": "README.md", "hash": "9f86d081884c7d65"},
                {"path": "src/main.py", "hash": "60303ae22b998861"},
            ],
        }
    },
)  # fmt: skip
async def plan_files(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    below: Annotated[str, Field(description="The folder, if it is not the whole project: others are left alone.")] = "",
    files: list[FileSeen],
) -> FilePlan:
    """Compare a folder with what is stored of it. Nothing changes.

    The answer tells which files to send, which have another path, and which are gone. Send the wanted files to
    `batch`, and the rest of the plan to `finish`.
    """
    return await services.files.plan(caller, namespace, files, below=below)


@operation(
    "POST", f"{PATH}/finish", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="FinishBody",
    examples={
        "renamed and gone": {
            "user_id": "alice",
            "namespace": "webshop",
            "renamed": [{"old": "main.py", "new": "src/main.py"}],
            "gone": ["old.py"],
        }
    },
)  # fmt: skip
async def finish_files(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    renamed: list[Rename] = [],  # noqa: B006
    gone: list[str] = [],  # noqa: B006
) -> FilesFinished:
    """Give stored files another path, and remove those that are gone. A renamed file keeps its passages."""
    return await services.files.finish(caller, namespace, renamed=renamed, gone=gone)
