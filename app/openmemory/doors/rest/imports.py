"""REST endpoint that imports a file: an archive, or what another program left."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field

from openmemory.backup.format import BadArchive
from openmemory.backup.service import Mode
from openmemory.doors.rest.backup import check_size, may_send
from openmemory.doors.rest.http import upload
from openmemory.doors.rest.http.caller import LEFT_OUT, TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented, problem
from openmemory.doors.rest.http.routing import Router
from openmemory.importers.left_out import SkippedRowsView
from openmemory.importers.service import FileImport, ImportedUser
from openmemory.importers.source import FileKind

router = Router("/api/v1/imports", "backup")

_FORM = upload.described(
    "An archive, a database or an export of OpenMemory, or JSON of mem0.",
    {"user_id": f"The user who imports; {LEFT_OUT}"},
)


class ImportedFile(BaseModel):
    """The result of the import of a file."""

    kind: FileKind
    users: dict[str, int] = Field(description="The users in the file, with the numbers of their memories.")
    imported: list[ImportedUser] = Field(description="Empty: the file has several users, and one must be chosen.")
    left_out: SkippedRowsView
    notes: list[str]


@router.post(
    "", response_model=ImportedFile, responses=documented(400, 403, 404, 409, 413) | upload.NO_FORM, openapi_extra=_FORM
)
async def import_file(
    *,
    request: Request,
    services: TheServices,
    asking: TheAsking,
    of: Annotated[str | None, Query(description="Only this user of the file; left out: all of them.")] = None,
    into: Annotated[
        str | None,
        Query(
            description="The user who gets the memories, made if new; left out: the user, or users of the same names."
        ),
    ] = None,
    mode: Annotated[
        Mode, Query(description="Of memories that are there: skip leaves them, overwrite makes them as in the file.")
    ] = "skip",
    dry_run: Annotated[bool, Query(description="Only report: nothing is imported, and nobody is made.")] = False,
) -> ImportedFile | Response:
    """Import a file: an archive, the database or an export of OpenMemory, or memories of mem0 as JSON.

    Its content tells which of them it is. Each user in the file is imported as a whole or not at all. A credential of
    one user imports for this user only.
    """
    may_send(asking)
    async with services.backup.upload(asking.principal) as spool:
        form = await upload.receive(request, "file", spool)
        check_size(form, services.settings.limits.backup)
        caller = await asking.as_owner_or_new(form.fields.get("user_id"))
    try:
        report = await services.imports.import_file(caller, spool, FileImport(of, into, mode, dry_run))
    except BadArchive as error:
        return problem(400, error.code, error.message, error.hint)
    return ImportedFile(
        kind=report.kind, users=report.users, imported=report.imported, left_out=report.left_out.view,
        notes=report.notes,
    )  # fmt: skip
