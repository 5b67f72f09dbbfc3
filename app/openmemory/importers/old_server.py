"""Reads a running OpenMemory server: its export of one user, and the access log, which the export leaves out."""

from __future__ import annotations

import asyncio
import json
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmemory.backup.container import lines_member
from openmemory.backup.format import TABLES
from openmemory.errors import NotFound, OpenMemoryError, SetupError
from openmemory.importers.cleaning import CleanedJson, Unusable, identifier, mapping, moment, text
from openmemory.importers.exported import memories_of, opened
from openmemory.importers.fetching import download, fetched
from openmemory.importers.left_out import SkippedRows
from openmemory.schema.archives import ACCESS_LOGS
from openmemory.serialization import exact_json

if TYPE_CHECKING:
    from httpx import AsyncClient

_AT_ONCE = 8
"""Concurrent requests to the old server. It has four workers, each of which handles one request at a time."""
_PAGE = 100
_MAX_PAGES = 10_000
_MAX_PAGE_BYTES = 16 * 1024 * 1024


async def export(url: str, user: str, folder: Path, *, most: int) -> Path:
    """The old server's own export of a user, at most `most` bytes, as a file.

    Raises:
        NotFound: the server has no such user.
        SetupError: the server has no export.
        Unavailable: the server does not answer.
    """
    path = folder / "exported.zip"
    async with _client(url) as http:
        # This request shows that the server answers. A later 404 then means a missing user or a missing export.
        await fetched(http, "GET", "/openapi.json", most=_MAX_PAGE_BYTES)
        body = {"user_id": user, "include_vectors": False}
        try:
            await download(http, "POST", "/api/v1/backup/export", path, most=most, body=body)
        except NotFound:
            words = await _without_export(http, url, user)
            raise words from None
    return path


async def _without_export(http: AsyncClient, url: str, user: str) -> OpenMemoryError:
    try:
        await fetched(http, "GET", "/api/v1/stats/", most=_MAX_PAGE_BYTES, params={"user_id": user})
    except NotFound:
        return NotFound(f"{url} has no user {user!r}", hint="name one with --user")
    return SetupError(
        f"{url} is too old to export", hint="stop it and import its openmemory.db, which holds everything, instead"
    )


async def with_accesses(
    url: str, export_path: Path, folder: Path, skipped_rows: SkippedRows, show: Callable[[int, int | None], None]
) -> Path:
    """The export, completed with the access log of every memory.

    Raises:
        BadArchive: the file is not an export, or is too large unpacked.
    """
    path = folder / "whole.zip"
    total = sum(1 for _ in memories_of(export_path))
    count = 0
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        await asyncio.to_thread(_copy, export_path, archive)
        with lines_member(archive, ACCESS_LOGS.name) as file:

            async def copy(http: AsyncClient, memory: str) -> None:
                try:
                    async for line in _log(http, memory):
                        if isinstance(line, dict) and (access := _access(line, memory, skipped_rows)) is not None:
                            file.write(exact_json.dumps(access) + b"\n")
                except Unusable as problem:
                    skipped_rows.note("memory_access_logs", memory, str(problem))

            async with _client(url) as http:
                memories = _ids(export_path)
                while some := list(islice(memories, _AT_ONCE)):
                    await asyncio.gather(*(copy(http, memory) for memory in some))
                    count += len(some)
                    show(count, total)
    return path


def _client(url: str) -> AsyncClient:
    import httpx

    limits = httpx.Limits(max_connections=_AT_ONCE)
    timeout = httpx.Timeout(300, connect=10)
    return httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, follow_redirects=False)


def _ids(export_path: Path) -> Iterator[str]:
    """The valid ids of the memories. Others are skipped, because the ids become part of a URL."""
    for memory in memories_of(export_path):
        with suppress(Unusable):
            yield identifier("id", memory["id"])


async def _log(http: AsyncClient, memory: str) -> AsyncIterator[Any]:
    """The lines of a memory's log, read page by page, so that only one page is held in memory.

    Raises:
        Unusable: the log ends here; the message states why.
    """
    line_count = 0
    for page in range(1, _MAX_PAGES + 1):
        params = {"page": page, "page_size": _PAGE}
        try:
            answer = await fetched(
                http, "GET", f"/api/v1/memories/{memory}/access-log", most=_MAX_PAGE_BYTES, params=params
            )
            document = json.loads(answer)  # exact numbers, and Python's NaN and infinity
            lines, total = list(document["logs"]), int(document["total"])
        except NotFound:
            raise Unusable("the old server has no access log of it") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Unusable("the old server's answer is not an access log") from None
        for line in lines:
            yield line
        line_count += len(lines)
        if len(lines) < _PAGE or line_count >= total:
            return
    raise Unusable(f"has more than {_MAX_PAGES * _PAGE:,} lines; the others are left out")


def _access(line: dict[str, Any], memory: str, skipped_rows: SkippedRows) -> dict[str, Any] | None:
    try:
        metadata = mapping("metadata", line.get("metadata_"))
        access = {
            "id": identifier("id", line.get("id")), "memory_id": identifier("memory_id", memory),
            "app_id": identifier("app_id", line.get("app_id")),
            "accessed_at": moment("accessed_at", line.get("accessed_at")),
            "access_type": text("access_type", line.get("access_type")),
            "metadata": exact_json.loads(metadata),
        }  # fmt: skip
    except Unusable as error:
        skipped_rows.note("memory_access_logs", line.get("id"), str(error))
        return None
    if isinstance(metadata, CleanedJson):
        skipped_rows.mended["memory_access_logs"] += metadata.numbers
    return access


def _copy(export_path: Path, archive: zipfile.ZipFile) -> None:
    """Copies the tables of the export unchanged; the service validates them. The member with the texts for other
    programs repeats them and is not unpacked."""
    with (
        opened(export_path) as container,
        container.open(TABLES) as read,
        archive.open(TABLES, "w", force_zip64=True) as to,
    ):
        while data := read(1 << 20):
            to.write(data)
