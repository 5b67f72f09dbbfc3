"""REST endpoints for files: a client reads a folder, and the service keeps what it read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openmemory.errors import Invalid
from openmemory.memories.schemas import OnError
from openmemory.rest.caller import BodyUser, Namespaces, TheAsking, TheServices
from openmemory.rest.errors import MEANINGS, BatchProblem, ItemProblem, as_invalid, documented
from openmemory.rest.routing import Router
from openmemory.sources.schemas import (
    FilePage,
    FilePlan,
    FilesFinished,
    FileStored,
    ListedFile,
    NewFile,
    Rename,
)

router = Router("/api/v1/files", "files")


class FilesBody(BaseModel):
    """The user, the app and the project that files belong to."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that reads the folder; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")


class FileSeen(BaseModel):
    """A file of the folder."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(description="Relative to the folder, with /.", examples=["src/main.py"])
    hash: str = Field(description="Of its content, in whatever way you choose.", examples=["9f86d081884c7d65"])


class PlanBody(FilesBody):
    """All files of a folder."""

    below: str = Field(default="", description="The folder, if it is not the whole project: others are left alone.")
    files: list[FileSeen]


class FileEntry(BaseModel):
    """A file with its text."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(examples=["src/main.py"])
    text: str
    hash: str | None = Field(default=None, description="As in the plan; left out: the SHA-256 of the text.")


class FilesBatch(FilesBody):
    """Texts of files. Each is checked by itself, so an invalid one does not stop the others."""

    files: list[Any] = Field(
        description="At most limits.batch of them.",
        json_schema_extra={"items": FileEntry.model_json_schema(ref_template="#/components/schemas/{model}")},
    )
    on_error: OnError = Field(
        "skip", description="If a file is refused, skip stores the others; fail stores all of them or none."
    )


class FilesAnswer(BaseModel):
    """The result for each file."""

    results: list[FileStored | ItemProblem] = Field(description="The results, in the order of the files.")
    refused: list[ItemProblem] = Field(description="The items of `results` that were not stored.")


class FinishBody(FilesBody):
    """The files that are elsewhere or gone, as the plan told."""

    renamed: list[Rename] = []
    gone: list[str] = []


@router.get("", responses=documented(403, 404))
async def list_files(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: Annotated[str | None, Query(description="The user's name.")] = None,
    app: Annotated[str | None, Query(description="Ask as this app of the user, with its rules.")] = None,
    namespace: Namespaces = (),
    path: Annotated[str, Query(description="Only files whose path begins so.")] = "",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 50,
) -> FilePage:
    """List a user's stored files, by path."""
    caller = await asking.as_reader(user_id, app)
    return await services.files.list(caller, namespaces=namespace, below=path, page=page, size=size)


@router.post("/plan", responses=documented(403, 404, 413))
async def plan_files(
    services: TheServices,
    asking: TheAsking,
    wanted: Annotated[
        PlanBody,
        Body(
            openapi_examples={
                "a folder": {
                    "value": {
                        "user_id": "alice",
                        "namespace": "webshop",
                        "files": [
                            {"path": "README.md", "hash": "9f86d081884c7d65"},
                            {"path": "src/main.py", "hash": "60303ae22b998861"},
                        ],
                    }
                }
            }
        ),
    ],
) -> FilePlan:
    """Compare a folder with what is stored of it. Nothing changes.

    The answer tells which files to send, which have another path, and which are gone. Send the wanted files to
    `batch`, and the rest of the plan to `finish`.
    """
    caller = await asking.as_app(wanted.user_id, wanted.app)
    seen = [ListedFile(one.path, one.hash) for one in wanted.files]
    return await services.files.plan(caller, wanted.namespace, seen, below=wanted.below)


@router.post("/batch", responses=documented(403, 404, 413) | {
    422: {"model": BatchProblem, "description": MEANINGS[422]}
})  # fmt: skip
async def store_files(
    services: TheServices,
    asking: TheAsking,
    batch: Annotated[
        FilesBatch,
        Body(
            openapi_examples={
                "one": {
                    "value": {
                        "user_id": "alice",
                        "namespace": "webshop",
                        "files": [{"path": "README.md", "text": "# Webshop\n\nRun `make serve`.\n"}],
                    }
                }
            }
        ),
    ],
) -> FilesAnswer:
    """Store the texts of files, cut into passages. They are found with `corpus=passages` of a search.

    A file that was stored before keeps the passages that did not change. Secrets are redacted, and the result names
    their kinds.
    """
    caller = await asking.as_app(batch.user_id, batch.app)
    # In a thread, because a batch may be large.
    files = await asyncio.to_thread(lambda: [_read(entry) for entry in batch.files])
    became = await services.files.store(caller, batch.namespace, files, on_error=batch.on_error)
    results = [ItemProblem.of(index, one) if isinstance(one, Invalid) else one for index, one in enumerate(became)]
    return FilesAnswer(results=results, refused=[one for one in results if isinstance(one, ItemProblem)])


@router.post("/finish", responses=documented(403, 404, 413))
async def finish_files(
    services: TheServices,
    asking: TheAsking,
    wanted: Annotated[
        FinishBody,
        Body(
            openapi_examples={
                "renamed and gone": {
                    "value": {
                        "user_id": "alice",
                        "namespace": "webshop",
                        "renamed": [{"old": "main.py", "new": "src/main.py"}],
                        "gone": ["old.py"],
                    }
                }
            }
        ),
    ],
) -> FilesFinished:
    """Give stored files another path, and remove those that are gone. A renamed file keeps its passages."""
    caller = await asking.as_app(wanted.user_id, wanted.app)
    return await services.files.finish(caller, wanted.namespace, renamed=wanted.renamed, gone=wanted.gone)


def _read(entry: Any) -> NewFile | Invalid:
    try:
        valid = FileEntry.model_validate(entry)
    except ValidationError as error:
        return as_invalid(error.errors(include_url=False, include_input=False, include_context=False))
    return NewFile(valid.path, valid.text, valid.hash)
