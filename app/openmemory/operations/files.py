"""Use cases of files: a client reads a folder, and the service keeps what it read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from openmemory.memories.schemas import OnError
from openmemory.operations.batches import BatchReport, ItemProblem, Refused, items_of, parsed, reported
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize, Project
from openmemory.sources.schemas import FilePage, FilePlan, FileSeen, FilesFinished, FileStored, NewFile, Rename

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "files"
PATH = "/api/v1/files"


class FileEntry(BaseModel):
    """A file with its text."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(examples=["src/main.py"])
    text: str
    hash: str | None = Field(default=None, description="As in the plan; left out: the SHA-256 of the text.")

    def file(self) -> NewFile:
        """Returns the input of the service."""
        return NewFile(self.path, self.text, self.hash)


class FilesAnswer(BatchReport):
    """The result for each file."""

    results: list[FileStored | ItemProblem] = Field(description="The results, in the order of the files.")
    refused: Refused


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
    "POST", f"{PATH}/plan", command="ingest", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="PlanBody",
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
    "POST", f"{PATH}/batch", command="ingest", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="FilesBatch",
    examples={
        "one": {
            "user_id": "alice",
            "namespace": "webshop",
            "files": [{"path": "README.md", "text": "# Webshop\n\nRun `make serve`.\n"}],
        }
    },
)  # fmt: skip
async def store_files(
    services: Services,
    caller: Caller,
    *,
    namespace: Project = "default",
    files: Annotated[list[Any], items_of(FileEntry)],
    on_error: Annotated[
        OnError, Field(description="If a file is refused, skip stores the others; fail stores all of them or none.")
    ] = "skip",
) -> FilesAnswer:
    """Store the texts of files, cut into passages. They are found with `corpus=passages` of a search.

    A file that was stored before keeps the passages that did not change. Secrets are redacted, and the result names
    their kinds.
    """
    new = await parsed(files, FileEntry, FileEntry.file)
    return FilesAnswer(**reported(await services.files.store(caller, namespace, new, on_error=on_error)))


@operation(
    "POST", f"{PATH}/finish", command="ingest", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 413), body="FinishBody",
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
