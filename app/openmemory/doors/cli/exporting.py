"""Writes all memories of a user to a file: as JSON Lines, page by page, or as an archive that the service creates."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from openmemory.doors.cli.client import Client
from openmemory.doors.cli.jsonl import STATES
from openmemory.doors.cli.output import memories, note, progress
from openmemory.errors import SetupError, Unavailable
from openmemory.resilience.atomic_files import replacing

_LINE_BREAKS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Characters that are legal within a line of JSON Lines, but at which many programs would break the line."""
_PAGE = 100


async def export_lines(client: Client, name: str, *, user: str, states: Sequence[str]) -> None:
    """Writes the memories in these states to a JSON Lines file; `-` is standard output.

    Raises:
        SetupError: the file cannot be written.
        NotFound: there is no such user.
    """
    count = 0
    with _open_output(name) as file, progress("memories") as show:
        async for page, total in _pages(client, user, states):
            for item in page:
                line = json.dumps(_line(user, item), ensure_ascii=False).translate(_LINE_BREAKS)
                file.write(f"{line}\n".encode())
            count += len(page)
            show(count, total)
    if name != "-":
        note(f"{memories(count)} of {user} written to {name}.")


async def export_archive(client: Client, name: str, *, user: str, vectors: bool) -> None:
    """Writes the archive of a user to a file, which appears only when it is complete.

    Raises:
        SetupError: the file cannot be written.
        NotFound: there is no such user.
        Unavailable: the service does not answer, or the response ended early.
    """
    body = {"user_id": user, "include_vectors": vectors}
    with _open_output(name) as file, progress("received", size=True) as show:
        async with client.stream("POST", "/api/v1/backup/export", json=body) as answer:
            total = int(answer.headers.get("content-length", "0"))
            size = 0
            async for data in answer.aiter_raw():
                file.write(data)
                size += len(data)
                show(size, total or None)
            if size != total:
                raise Unavailable(f"the archive ended after {size:,} of {total:,} bytes; run the command again")
    note(f"The archive of {user} is written to {name} ({size / 2**20:.1f} MiB).")


async def _pages(client: Client, user: str, states: Sequence[str]) -> AsyncIterator[tuple[list[dict[str, Any]], int]]:
    """Pages of memories in the requested states, each with the maximum total.

    Memories of all states are requested and filtered here. A memory whose state changes in the meantime then does
    not shift another one onto a page that was already read.
    """
    params: dict[str, Any] = {
        "user_id": user,
        "state": ",".join(STATES),
        "sort_column": "created_at",
        "sort_direction": "asc",
        "page": 1,
        "size": _PAGE,
        "export": True,
    }
    previous_ids: set[str] = set()
    while True:
        answer = await client.call("GET", "/api/v1/memories", params=params)
        # A memory added in the meantime with an earlier date shifts the end of the last page onto this one.
        yield (
            [item for item in answer["items"] if item["state"] in states and item["id"] not in previous_ids],
            answer["total"],
        )
        if params["page"] >= answer["pages"]:
            return
        previous_ids = {item["id"] for item in answer["items"]}
        params["page"] += 1


def _line(user: str, item: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": item["id"],
        "user": user,
        "app": item["app_name"],
        "namespace": item["namespace"],
        "thread_id": item["thread_id"],
        "kind": item["kind"],
        "key": item["key"],
        "text": item["content"],
        "metadata": item["metadata_"],
        "categories": item["categories"],
        "importance": item["importance"],
        "state": item["state"],
        "revision": item["revision"],
        "created_at": _iso(item["created_at"]),
        "updated_at": _iso(item["updated_at"]),
        "expires_at": item["expires_at"],
    }


@contextmanager
def _open_output(name: str) -> Iterator[BinaryIO]:
    """Opens a file that appears under its name only when it is complete. `-` is standard output.

    Raises:
        SetupError: the file cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer
        return
    try:
        with replacing(Path(name)) as file:
            yield file
    except OSError as error:
        raise SetupError(f"{name}: {error.strerror}") from error


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
