"""Sends an archive to the service, which reports progress during the import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from openmemory.doors.cli.client import Client, refusal
from openmemory.errors import Unavailable

if TYPE_CHECKING:
    from httpx import Response

_MAX_LINE_BYTES = 4 * 1024 * 1024
_LINES = "application/x-ndjson"


async def send(
    client: Client, archive: Path, user: str, mode: str, show: Callable[[int, int | None], None]
) -> dict[str, Any]:
    """Imports an archive into a user's memory and returns the service's report.

    Raises:
        OpenMemoryError: the service rejected it, failed or did not answer. Nothing was imported in this case.
    """
    with archive.open("rb") as file:
        async with client.stream(
            "POST",
            "/api/v1/backup/import",
            params={"mode": mode, "make_user": True},
            data={"user_id": user},
            files={"file": (archive.name, file, "application/zip")},
            headers={"Accept": f"{_LINES}, application/json"},
        ) as answer:
            return await _report(client, answer, show)


async def _report(client: Client, answer: Response, show: Callable[[int, int | None], None]) -> dict[str, Any]:
    async for line in answer.aiter_lines():
        if not line.strip() or len(line) > _MAX_LINE_BYTES:
            continue
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            break
        if not isinstance(message, dict):
            break
        if "report" in message:
            report: dict[str, Any] = message["report"]
            return report
        if "error" in message:
            raise refusal(answer, message)
        if isinstance(message.get("done"), int):
            show(message["done"], message.get("total"))
    raise Unavailable(f"{client.http.base_url} closed the connection before its report; run the command again")
