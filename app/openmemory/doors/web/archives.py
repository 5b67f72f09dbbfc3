"""Export of archives, import of files, and the last export."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from fastapi import APIRouter, HTTPException
from starlette.responses import Response

from openmemory.backup.exporting import ExportSelection
from openmemory.backup.format import BadArchive
from openmemory.doors.rest.backup import check_size, download
from openmemory.doors.rest.http import upload
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, check_token, text_of
from openmemory.importers.service import FileImport, FileReport

router = APIRouter(include_in_schema=False)

COUNTED = {
    "apps": "apps", "categories": "categories", "history": "changes of state", "revisions": "revisions",
    "access_logs": "accesses", "rules": "access rules", "policies": "archive policies",
    "descriptions": "descriptions of categories", "captures": "captures", "passages": "messages and passages of files",
    "vectors": "vectors",
}  # fmt: skip
"""The counts of a report besides those of memories, in words."""

OF_MEMORIES = {
    "added": "added", "replaced": "overwritten", "unchanged": "equal to what is here", "skipped": "here already, left",
    "renamed": "with a new id", "archived_duplicates": "archived, because another has the same text",
    "left_out": "left out",
}  # fmt: skip


@router.get("/ui/settings/archives")
async def show(page: ThePage) -> Response:
    """Show the forms, and when the user's memory was last exported."""
    return await _render(page)


@router.post("/ui/settings/archives/export")
async def export(page: ThePage, form: TheForm) -> Response:
    """Download everything of the user as an archive."""
    selection = ExportSelection(vectors=bool(text_of(form, "vectors")))
    return download(await page.services.backup.export(page.caller, selection), page.caller.user)


@router.post("/ui/settings/archives")
async def import_file(page: ThePage) -> Response:
    """Import a file, or report what an import would do."""
    services = page.services
    services.backup.may_import(page.caller)
    async with services.backup.upload(page.principal) as spool:
        form = await upload.receive(page.request, "file", spool)
        check_token(page.request, form.fields.get("token"))
        check_size(form, services.settings.limits.backup)
    file_import = FileImport(
        user=form.fields.get("of") or None,
        into=form.fields.get("into", "").strip() or None,
        mode="overwrite" if form.fields.get("mode") == "overwrite" else "skip",
        dry_run=form.fields.get("do") != "import",
    )
    try:
        report = await services.imports.import_file(page.caller, spool, file_import)
    except BadArchive as error:
        raise HTTPException(400, error.message) from None
    return await _render(page, report, file_import)


async def _render(
    page: PageRequest, report: FileReport | None = None, file_import: FileImport | None = None
) -> Response:
    last = await page.services.audit.last_export(page.caller) if page.everything else None
    return page.render(
        "archives.html",
        report=report,
        file_import=file_import or FileImport(),
        counted=COUNTED,
        of_memories=OF_MEMORIES,
        last=last,
        limit=page.services.settings.limits.backup,
        folder=page.services.stores.folder,
        backup=backup_commands(page),
    )


def backup_commands(page: PageRequest) -> dict[str, str]:
    """Returns the commands that back up the data folder of this service, by what they do; none if the data is on your
    own PostgreSQL server."""
    settings = page.services.settings
    if settings.database.url.get_secret_value():
        return {}
    folder = str(page.services.stores.folder)
    copy = f"{folder}-backup-{datetime.now(UTC):%Y-%m-%d}"
    return {
        "Stop the service": shlex.join(["openmemory", "stop", "--data-dir", folder]),
        "Copy the data": shlex.join(["cp", "-a", folder, copy]),
        "Start it again": shlex.join(["openmemory", "serve", "--data-dir", folder]),
    }
