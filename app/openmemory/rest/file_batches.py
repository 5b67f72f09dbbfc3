"""REST endpoints for files: a client reads a folder, and the service keeps what it read."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openmemory.errors import Invalid
from openmemory.memories.schemas import OnError
from openmemory.rest.caller import BodyUser, TheAsking, TheServices
from openmemory.rest.errors import MEANINGS, BatchProblem, ItemProblem, as_invalid, documented
from openmemory.rest.routing import Router
from openmemory.sources.schemas import FileStored, NewFile

router = Router("/api/v1/files", "files")


class FileEntry(BaseModel):
    """A file with its text."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(examples=["src/main.py"])
    text: str
    hash: str | None = Field(default=None, description="As in the plan; left out: the SHA-256 of the text.")


class FilesBatch(BaseModel):
    """Texts of files. Each is checked by itself, so an invalid one does not stop the others."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that reads the folder; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")

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


def _read(entry: Any) -> NewFile | Invalid:
    try:
        valid = FileEntry.model_validate(entry)
    except ValidationError as error:
        return as_invalid(error.errors(include_url=False, include_input=False, include_context=False))
    return NewFile(valid.path, valid.text, valid.hash)
