"""An OpenMemory server that still runs: its export of one user, and the log of accesses, which that leaves out."""

from __future__ import annotations

import asyncio
import shutil
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from app.cli.migrating.archive import lines_member
from app.cli.migrating.cleaning import Unusable, identifier, mapping, moment, text
from app.cli.migrating.exported import memories_of
from app.cli.migrating.fetching import download, fetched
from app.cli.migrating.staging import LeftOut
from app.errors import NotFound, OpenMemoryError, SetupError

if TYPE_CHECKING:
    from httpx import AsyncClient

_AT_ONCE = 8
"""Requests to the old server at a time: it has four workers, each of which does one thing after the other."""
_PAGE = 100
_MOST_PAGES = 10_000
_LARGEST_PAGE = 16 * 1024 * 1024


class _Log(NamedTuple):
    memory: str
    lines: list[dict[str, Any]]
    problem: str | None


async def export(url: str, user: str, folder: Path, *, most: int) -> Path:
    """The old server's own export of a user, at most `most` bytes, as a file.

    Raises:
        NotFound: it has no such user.
        SetupError: it has no export.
        Unavailable: it does not answer.
    """
    path = folder / "exported.zip"
    async with _client(url) as http:
        # What it answers of its own accord tells a server without this user from one without an export.
        await fetched(http, "GET", "/openapi.json", most=_LARGEST_PAGE)
        body = {"user_id": user, "include_vectors": False}
        try:
            await download(http, "POST", "/api/v1/backup/export", path, most=most, body=body)
        except NotFound:
            words = await _without_export(http, url, user)
            raise words from None
    return path


async def _without_export(http: AsyncClient, url: str, user: str) -> OpenMemoryError:
    try:
        await fetched(http, "GET", "/api/v1/stats/", most=_LARGEST_PAGE, params={"user_id": user})
    except NotFound:
        return NotFound(f"{url} has no user {user!r}", hint="name one with --user")
    return SetupError(
        f"{url} is too old to export", hint="stop it and import its openmemory.db, which holds everything, instead"
    )


async def with_accesses(
    url: str, exported: Path, folder: Path, left_out: LeftOut, show: Callable[[int, int | None], None]
) -> Path:
    """The export with the log of accesses of every memory in it."""
    path = folder / "whole.zip"
    total = sum(1 for _ in memories_of(exported))
    done = 0
    with zipfile.ZipFile(path, "w") as archive:
        _copy(exported, archive)
        with lines_member(archive, "access_logs.jsonl.gz") as file:
            async with _client(url) as http:
                async for log in _logs(http, _ids(exported)):
                    if log.problem is not None:
                        left_out.note("memory_access_logs", log.memory, log.problem)
                    for line in log.lines:
                        if (access := _access(line, log.memory, left_out)) is not None:
                            file.write(orjson.dumps(access) + b"\n")
                    done += 1
                    show(done, total)
    return path


def _client(url: str) -> AsyncClient:
    import httpx

    limits = httpx.Limits(max_connections=_AT_ONCE)
    timeout = httpx.Timeout(300, connect=10)
    return httpx.AsyncClient(base_url=url, timeout=timeout, limits=limits, follow_redirects=False)


def _ids(exported: Path) -> Iterator[str]:
    """The ids of the memories, as far as they are some: they become part of an address."""
    for memory in memories_of(exported):
        with suppress(Unusable):
            yield identifier("id", memory["id"])


async def _logs(http: AsyncClient, memories: Iterator[str]) -> AsyncIterator[_Log]:
    """The logs of all memories, a few at a time."""
    while some := list(islice(memories, _AT_ONCE)):
        for log in await asyncio.gather(*(_log(http, memory) for memory in some)):
            yield log


async def _log(http: AsyncClient, memory: str) -> _Log:
    lines: list[dict[str, Any]] = []
    for page in range(1, _MOST_PAGES + 1):
        params = {"page": page, "page_size": _PAGE}
        try:
            answer = await fetched(
                http, "GET", f"/api/v1/memories/{memory}/access-log", most=_LARGEST_PAGE, params=params
            )
            found = orjson.loads(answer)
            lines += [line for line in found["logs"] if isinstance(line, dict)]
            if len(found["logs"]) < _PAGE or len(lines) >= found["total"]:
                return _Log(memory, lines, None)
        except NotFound:
            return _Log(memory, lines, "the old server has no log of it")
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return _Log(memory, lines, "the old server's answer is no log")
    return _Log(memory, lines, f"has more than {_MOST_PAGES * _PAGE:,} lines")


def _access(line: dict[str, Any], memory: str, left_out: LeftOut) -> dict[str, Any] | None:
    try:
        return {
            "id": identifier("id", line.get("id")), "memory_id": identifier("memory_id", memory),
            "app_id": identifier("app_id", line.get("app_id")),
            "accessed_at": moment("accessed_at", line.get("accessed_at")),
            "access_type": text("access_type", line.get("access_type")),
            "metadata": orjson.loads(mapping("metadata", line.get("metadata_"))),
        }  # fmt: skip
    except Unusable as error:
        left_out.note("memory_access_logs", line.get("id"), str(error))
        return None


def _copy(exported: Path, archive: zipfile.ZipFile) -> None:
    """The members of the export as they are; the service looks at them more closely."""
    with zipfile.ZipFile(exported) as source:
        for entry in source.infolist():
            name = entry.filename.rpartition("/")[2]
            if name in ("memories.json", "memories.jsonl.gz"):
                info = zipfile.ZipInfo(name, entry.date_time)
                info.compress_type = zipfile.ZIP_DEFLATED if name.endswith(".json") else zipfile.ZIP_STORED
                with source.open(entry) as of, archive.open(info, "w", force_zip64=True) as to:
                    shutil.copyfileobj(of, to, 1 << 20)
