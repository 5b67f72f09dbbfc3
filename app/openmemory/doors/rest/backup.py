"""Export and import of archives over REST."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Annotated, Any, BinaryIO, cast, get_args
from urllib.parse import quote
from uuid import UUID

import orjson
from fastapi import Body, HTTPException, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from openmemory.backup.exporting import ExportSelection
from openmemory.backup.format import BadArchive
from openmemory.backup.report import ImportReport
from openmemory.backup.service import Mode, Progress, Stage
from openmemory.doors.rest.http import upload
from openmemory.doors.rest.http.caller import LEFT_OUT, AuthenticatedRequest, BodyUser, TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented, problem
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import InTimezone
from openmemory.errors import Forbidden, OpenMemoryError, TooLarge
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.identity.request import request_context_of
from openmemory.memories.schemas import OnError
from openmemory.operations.parameters import FromDate, ToDate, first_moment, last_moment
from openmemory.uploads.spool import Spool

log = logging.getLogger(__name__)

router = Router("/api/v1/backup", "backup")

_ZIP = "application/zip"
_LINES = "application/x-ndjson"
_PIECE = 256 * 1024
_UNREAD = 1_000
"""The maximum number of unread progress lines; further ones are dropped."""
_PLAIN = re.compile(r"[A-Za-z0-9 !#$&()+,.;=@^_`{}~-]+")
_MODES = get_args(Mode)


class ExportBody(BaseModel):
    """What to export; what is left out means everything."""

    user_id: BodyUser = None
    app_id: UUID | None = Field(default=None, description="Only what this app wrote.")
    from_date: FromDate | None = None
    to_date: ToDate | None = None
    include_vectors: bool = Field(
        default=True,
        description="With the vectors, so that nothing has to be embedded again where they are brought in.",
    )


class Imported(BaseModel):
    """The result of an import."""

    message: str = Field(examples=['Import completed into user "alice"'])
    report: ImportReport


_ARCHIVE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The archive, a zip.",
        "content": {_ZIP: {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"Content-Disposition": {"schema": {"type": "string"}, "description": "The name of the file."}},
    }
}
_FORM = upload.described("The archive; ends in `.zip`.", {"user_id": f"The user into whose memory it goes; {LEFT_OUT}"})
_PROGRESS: dict[int | str, dict[str, Any]] = {
    200: {
        "model": Imported,
        "description": "Brought in. With `Accept: application/x-ndjson` lines of progress, "
        '`{"stage", "done", "total"}`, and at the end this or `{"error", "detail", "hint"}`.',
        "content": {_LINES: {"schema": {"type": "string"}}},
    },
    **upload.NO_FORM,
}


@router.post("/export", response_class=Response, responses=documented(403, 404) | _ARCHIVE, dependencies=[InTimezone])
async def export_backup(
    services: TheServices,
    asking: TheAsking,
    body: Annotated[
        ExportBody,
        Body(
            openapi_examples={
                "everything": {"value": {"user_id": "default_user"}},
                "without vectors": {"value": {"user_id": "default_user", "include_vectors": False}},
            }
        ),
    ],
) -> Response:
    """Exports all memories of a user, including deleted ones, as an archive that `import` accepts."""
    caller = await asking.as_owner(body.user_id)
    which = ExportSelection(
        body.app_id,
        first_moment(body.from_date, caller.timezone),
        last_moment(body.to_date, caller.timezone),
        body.include_vectors,
    )
    return download(await services.backup.export(caller, which), caller.user)


def download(archive: BinaryIO, user: str) -> Response:
    """Returns a response that streams an archive, and closes it."""
    size = archive.seek(0, 2)
    headers = {"Content-Length": str(size), "Content-Disposition": _disposition(user)}
    return StreamingResponse(_pieces(archive), media_type=_ZIP, headers=headers)


@router.post(
    "/import", response_model=Imported, responses=documented(400, 403, 404, 409, 413) | _PROGRESS, openapi_extra=_FORM
)
async def import_backup(
    *,
    request: Request,
    services: TheServices,
    asking: TheAsking,
    mode: Annotated[
        str,
        Query(
            description="Of memories that are there: overwrite makes them what the archive says, skip leaves them.",
            json_schema_extra={"enum": list(_MODES)},
        ),
    ] = "overwrite",
    make_user: Annotated[bool, Query(description="Make the user, if there is none of this name.")] = False,
    on_error: Annotated[
        OnError, Query(description="If something is refused for its content, skip leaves it out; fail takes nothing.")
    ] = "skip",
    dry_run: Annotated[bool, Query(description="Only report: nothing is imported, and nobody is made.")] = False,
) -> Any:
    """Imports an archive, all of it or nothing. Items that are refused for their content are left out and reported,
    unless `on_error` is `fail`."""
    if mode not in _MODES:
        raise HTTPException(400, "Invalid mode. Must be 'skip' or 'overwrite'.")
    may_send(asking)
    as_lines = _LINES in request.headers.get("accept", "").lower()
    async with services.backup.upload(asking.principal) as spool:
        form = await upload.receive(request, "file", spool)
        caller = await _resolve_user(form, asking, make_user=make_user, dry_run=dry_run)
    restoring = partial(services.backup.restore, caller, spool, cast(Mode, mode), on_error=on_error, dry_run=dry_run)
    if as_lines:
        lines = _report_lines(restoring, caller, spool, request_context_of(request.scope).request)
        return StreamingResponse(lines, media_type=_LINES)
    try:
        report = await restoring()
    except BadArchive as error:
        return problem(400, error.code, error.message, error.hint)
    return _to_response(caller, report)


def may_send(asking: AuthenticatedRequest) -> None:
    """Rejects a request that no user named in the form could make valid, before the body is read."""
    principal = asking.principal
    principal.must(Scope.WRITE)
    if principal.app is not None:
        raise Forbidden("Only the user may import memories.", code="owner_only")
    if principal.namespaces is not None:
        words = "Only a credential for all of the user's namespaces may import memories."
        raise Forbidden(words, code="namespace_not_allowed")


async def _resolve_user(form: upload.Form, asking: AuthenticatedRequest, *, make_user: bool, dry_run: bool) -> Caller:
    """Validates the uploaded form and returns the caller whose memory it goes to. A dry run makes no user."""
    if not (form.filename or "").lower().endswith(".zip"):
        raise HTTPException(400, "Expected a zip file.")
    check_size(form, asking.services.settings.limits.backup)
    user = form.fields.get("user_id")
    if make_user and dry_run:
        caller = await asking.as_owner_or_new(user)
    else:
        caller = await asking.as_owner(user, make=make_user)
    asking.services.backup.may_import(caller)
    return caller


def check_size(form: upload.Form, limit: int) -> None:
    """Require an uploaded file to be no longer than the limit.

    Raises:
        TooLarge: it is longer.
    """
    if form.size > limit:
        raise TooLarge("file", f"has {form.size:,} bytes; the limit is {limit:,} (limits.backup)")


async def _report_lines(
    restoring: Callable[[Progress], Coroutine[Any, Any, ImportReport]], caller: Caller, spool: Spool, request_id: str
) -> AsyncIterator[bytes]:
    """Streams the progress and the result of the import as lines. A slow reader does not delay the import."""
    news: asyncio.Queue[bytes | None] = asyncio.Queue()

    def progress(stage: Stage, count: int, total: int | None) -> None:
        if news.qsize() < _UNREAD:
            news.put_nowait(_line({"stage": stage, "done": count, "total": total}))

    size = spool.tell()
    importing = asyncio.create_task(restoring(progress), name="import")
    importing.add_done_callback(lambda _: news.put_nowait(None))
    try:
        yield _line({"stage": "receiving", "done": size, "total": size})
        while (line := await news.get()) is not None:
            yield line
        yield _line(_outcome(importing, caller, request_id))
    finally:
        # A client that disconnects cancels the import, and nothing of it is kept.
        importing.cancel()
        await asyncio.gather(importing, return_exceptions=True)


def _outcome(importing: asyncio.Task[ImportReport], caller: Caller, request_id: str) -> dict[str, Any]:
    try:
        return _to_response(caller, importing.result()).model_dump(mode="json")
    except OpenMemoryError as error:
        return {"error": error.code, "detail": error.message, "hint": error.hint}
    except Exception:
        log.exception("request %s failed: an import into the memory of a user", request_id)
        words = f"The request failed; the log tells why under {request_id}."
        return {"error": "internal_error", "detail": words, "hint": None}


def _to_response(caller: Caller, report: ImportReport) -> Imported:
    return Imported(message=f'Import completed into user "{caller.user}"', report=report)


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


async def _pieces(archive: BinaryIO) -> AsyncIterator[bytes]:
    try:
        archive.seek(0)
        while data := await asyncio.to_thread(archive.read, _PIECE):
            yield data
    finally:
        archive.close()


def _disposition(user: str) -> str:
    """Returns the Content-Disposition header. A file name that a plain header cannot carry gets an ASCII fallback."""
    name = f"memories_export_{user}.zip"
    if _PLAIN.fullmatch(user):
        return f'attachment; filename="{name}"'
    plain = "".join(each if _PLAIN.fullmatch(each) else "_" for each in name)
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"
