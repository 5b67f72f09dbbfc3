"""Writes a user's memories, page by page, to a JSON Lines file."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from openmemory.cli.client import Client
from openmemory.cli.jsonl import STATES
from openmemory.cli.output import counting, note
from openmemory.errors import Invalid, SetupError

_LINE_BREAKS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Characters that are legal within a line of JSON Lines, but at which many programs would break the line."""
_PAGE = 100
_AT_ONCE = 8
_ONLY_SHOWN_ALONE = ("key", "importance", "expires_at")
"""Fields that a list response may leave out."""


class Export:
    """One export of a user's memories."""

    def __init__(self, client: Client, *, user: str | None, state: str) -> None:
        """`state`: comma-separated, or `all`.

        Raises:
            Invalid: there is no such state.
        """
        self._client = client
        self._user = client.user(user)
        self._states = STATES if state == "all" else tuple(part.strip() for part in state.split(","))
        if unknown := [part for part in self._states if part not in STATES]:
            raise Invalid("--state", f"{unknown[0]!r} must be one of {', '.join(STATES)}, or all")

    async def file(self, name: str) -> None:
        """Writes the memories to a file; `-` is standard output.

        Raises:
            SetupError: the file cannot be written.
            NotFound: there is no such user.
        """
        written = 0
        with drafted(name, binary=False) as file, counting("memories") as show:
            async for page, total in self._pages():
                for memory in page:
                    file.write(json.dumps(memory, ensure_ascii=False).translate(_LINE_BREAKS) + "\n")
                written += len(page)
                show(written, total)
        if name != "-":
            note(f"{written} memories of {self._user} written to {name}.")

    async def _pages(self) -> AsyncIterator[tuple[list[dict[str, Any]], int]]:
        """Pages of memories in the requested states, each with the maximum total.

        Memories of all states are requested and filtered here. A memory whose state changes in the meantime then does
        not shift another one onto a page that was already read.
        """
        number = 0
        seen: set[str] = set()
        while True:
            number += 1
            params = {
                "user_id": self._user,
                "state": ",".join(STATES),
                "sort_column": "created_at",
                "sort_direction": "asc",
                "page": number,
                "size": _PAGE,
                "export": True,
            }
            answer = await self._client.call("GET", "/api/v1/memories", params=params)
            # A memory added in the meantime with an earlier date shifts the end of the last page onto this one.
            fresh = [item for item in answer["items"] if item["state"] in self._states and item["id"] not in seen]
            seen = {item["id"] for item in answer["items"]}
            yield [self._line(item) for item in await self._whole(fresh)], answer["total"]
            if number >= answer["pages"]:
                return

    async def _whole(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        if all(name in item for item in items for name in _ONLY_SHOWN_ALONE):
            return items
        turn = asyncio.Semaphore(_AT_ONCE)

        async def fetch(item: dict[str, Any]) -> dict[str, Any]:
            async with turn:
                found = await self._client.call("GET", f"/api/v1/memories/{item['id']}", params={"user_id": self._user})
            return item | {name: found[name] for name in _ONLY_SHOWN_ALONE}

        return await asyncio.gather(*map(fetch, items))

    def _line(self, item: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": item["id"],
            "user": self._user,
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
            "updated_at": _iso(item.get("updated_at")),
            "expires_at": _iso(item["expires_at"]),
        }


@contextmanager
def drafted(name: str, *, binary: bool) -> Iterator[IO[Any]]:
    """Opens a file that appears under its name only when it is complete. `-` is standard output.

    Raises:
        SetupError: the file cannot be written.
    """
    if name == "-":
        yield sys.stdout.buffer if binary else sys.stdout
        return
    path = Path(name)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        # Readable only by this account, because it holds all memories of a user.
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb" if binary else "w", encoding=None if binary else "utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise SetupError(f"{name}: {error.strerror}") from error
    finally:
        draft.unlink(missing_ok=True)


def _iso(moment: float | str | None) -> str | None:
    if moment is None or isinstance(moment, str):
        return moment
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")
