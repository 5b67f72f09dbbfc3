"""REST endpoints of documents that are no request and answer: one stores a file, one downloads it."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote
from uuid import UUID

from fastapi import Path, Request
from fastapi.responses import Response, StreamingResponse

from openmemory.doors.rest.http import upload
from openmemory.doors.rest.http.caller import LEFT_OUT, AskingApp, OwnersId, TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.errors import Invalid
from openmemory.sources.schemas import DocumentStored, NewDocument

router = Router(upload.DOCUMENTS, "documents")

_YES_OR_NO = {"true": True, "false": False}
_FIELDS = {
    "user_id": f"The user's name; {LEFT_OUT}",
    "app": "The app that sends the document; left out: the credential's.",
    "namespace": "The project; left out: default.",
    "name": "Its name, such as contracts/lease.pdf; left out: that of the file.",
    "title": "What it is about.",
    "ttl_days": "The document expires after so many days; left out: never.",
    "keep": "true: keep the original, so that it can be downloaded; false: only its text; left out: documents.keep.",
}
_FORM = upload.described("The document.", _FIELDS)
_ORIGINAL: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The original.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"Content-Disposition": {"schema": {"type": "string"}, "description": "The name of the file."}},
    }
}


@router.post(
    "",
    responses=documented(400, 403, 404, 413) | upload.NO_FORM,
    openapi_extra=_FORM,
)
async def store_document(request: Request, services: TheServices, asking: TheAsking) -> DocumentStored:
    """Store a document: PDF, Word (docx), HTML, or any text. Its text is cut into passages, which a search finds with
    `corpus=passages`.

    A document of the same name is replaced, and its unchanged passages stay. Secrets are redacted in the passages, and
    the result names their kinds. Originals are encrypted with a key of their user.
    """
    async with services.documents.upload(asking.principal) as spool:
        form = await upload.receive(request, "file", spool)
        if unknown := sorted(form.fields.keys() - _FIELDS):
            raise Invalid(unknown[0][:80] or "body", f"is not a field; there are file, {', '.join(_FIELDS)}")
        fields = {name: value for name, value in form.fields.items() if value}
        keep = fields.get("keep")
        if keep is not None and keep not in _YES_OR_NO:
            raise Invalid("keep", "must be true or false")
        caller = await asking.as_app(fields.get("user_id"), fields.get("app"))
        name = fields.get("name") or (form.filename or "").replace("\\", "/").rpartition("/")[2]
        new = NewDocument(
            name,
            fields.get("namespace", "default"),
            fields.get("title"),
            keep=None if keep is None else _YES_OR_NO[keep],
            ttl_days=_whole_number("ttl_days", fields.get("ttl_days")),
        )
        spool.flush()
        return await services.documents.store(caller, new, spool.file)


def _whole_number(field: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 9:
        raise Invalid(field, "must be a whole number")
    return int(text)


@router.get("/{document_id}/original", response_class=Response, responses=documented(403, 404) | _ORIGINAL)
async def download_document(
    services: TheServices,
    asking: TheAsking,
    document_id: Annotated[UUID, Path(description="The id of the document.")],
    user_id: OwnersId = None,
    app: AskingApp = None,
) -> Response:
    """Download the original of a document, as it was sent."""
    caller = await asking.as_owner_or_app_of("document", document_id, user_id, app)
    original = await services.documents.download(caller, document_id)
    name = quote(original.document.name.rpartition("/")[2], safe="")
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        # A browser must never show what somebody sent as a page of this service.
        "X-Content-Type-Options": "nosniff",
        "Content-Length": str(original.document.bytes),
    }
    return StreamingResponse(original.content, media_type="application/octet-stream", headers=headers)
