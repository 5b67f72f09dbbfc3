"""Use cases of documents: PDFs and other files, whose text is searched. `rest.originals` stores and downloads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize
from openmemory.sources.schemas import DocumentPage, DocumentsChanged, DocumentText

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "documents"
PATH = "/api/v1/documents"
ONE = f"{PATH}/{{document_id}}"

DocumentId = Annotated[UUID, Field(description="The id of the document.")]

_WHOSE = {"of a user": {"user_id": "alice"}}


@operation(
    "GET", PATH, command="documents list", tool="list_documents", tag=TAG, speaker=Speaker.READER, errors=(403, 404)
)
async def list_documents(
    services: Services,
    caller: Caller,
    *,
    namespace: OnlyProjects = (),
    name: Annotated[str, Field(description="Only documents whose name begins so.")] = "",
    page: PageNumber = 1,
    size: PageSize = 50,
) -> DocumentPage:
    """List documents, by name."""
    return await services.documents.list(caller, namespaces=namespace, below=name, page=page, size=size)


@operation(
    "GET", ONE, command="documents show", tool="read_document", tag=TAG, speaker=Speaker.READER, owned="document",
    errors=(403, 404),
)  # fmt: skip
async def read_document(
    services: Services, caller: Caller, *, document_id: DocumentId, page: PageNumber = 1, size: PageSize = 50
) -> DocumentText:
    """Read the text of a document, passage by passage."""
    return await services.documents.text(caller, document_id, page=page, size=size)


@operation(
    "DELETE", ONE, command="documents delete", tag=TAG, speaker=Speaker.READER, owned="document", errors=(403, 404)
)
async def delete_document(services: Services, caller: Caller, *, document_id: DocumentId) -> DocumentsChanged:
    """Soft-delete a document. It is no longer found; `restore` brings it back."""
    return await services.documents.delete(caller, document_id)


@operation(
    "POST", f"{ONE}/restore", command="documents restore", tag=TAG, speaker=Speaker.READER, owned="document",
    errors=(403, 404), examples=_WHOSE,
)  # fmt: skip
async def restore_document(services: Services, caller: Caller, *, document_id: DocumentId) -> DocumentsChanged:
    """Make a deleted document active again. Only the user may."""
    return await services.documents.restore(caller, document_id)


@operation(
    "POST", f"{ONE}/erase", command="documents delete", tag=TAG, speaker=Speaker.READER, owned="document",
    errors=(403, 404), examples=_WHOSE,
)  # fmt: skip
async def erase_document(services: Services, caller: Caller, *, document_id: DocumentId) -> DocumentsChanged:
    """Remove a document for good, with its passages, vectors and original. Only the user may."""
    return await services.documents.erase(caller, document_id)
