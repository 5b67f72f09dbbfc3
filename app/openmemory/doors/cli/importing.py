"""Imports the lines of a file in batches. Retries if the service is unavailable, and reports every invalid line."""

from __future__ import annotations

import asyncio
import io
import math
import os
import random
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from openmemory.backup.format import TABLES
from openmemory.content_policy.secrets import redacted
from openmemory.doors.cli.client import Client
from openmemory.doors.cli.jsonl import Line, batches, read_lines
from openmemory.doors.cli.output import CommandAnswer, progress
from openmemory.errors import (
    BatchRefused,
    ConflictError,
    Forbidden,
    Invalid,
    NotFound,
    SetupError,
    Unavailable,
)
from openmemory.importers.foreign import foreign_json, foreign_text, foreign_zip
from openmemory.importers.source import is_json_lines, is_sqlite, is_zip
from openmemory.resilience.daemon_threads import in_daemon
from openmemory.serialization.normal_form import normal_form
from openmemory.serialization.timestamps import epoch_seconds

_BATCH = 200
_BATCH_BYTES = 1_000_000
_COMPARED = 1_000
"""Characters of a text used in the search for an existing memory."""
_RETRIES = 8
_MAX_PAUSE = 10.0
_OF_THE_LINES = (ConflictError, Forbidden, Invalid, NotFound)
"""Errors that a single line may cause. Any other error ends the import."""


class Import:
    """One import of a file, and its counts."""

    def __init__(self, client: Client, *, user: str | None, app: str | None) -> None:
        """`user` and `app` apply to lines that name none; None leaves them to the service."""
        self.added = self.already = self.left_out = self.failed = 0
        self._client = client
        self._user = user
        self._app = app
        self._default_app: str | None = None

    async def file(self, name: str) -> None:
        """Stores every line of the file; `-` is standard input.

        Raises:
            SetupError: the file cannot be read.
            Unavailable: the service did not answer for a minute. Memories already added stay.
        """
        with _open_source(name) as file, progress("read", size=True) as show:
            await in_daemon(lambda: _refuse_other_kinds(name, file), name="import-reader")
            status = os.fstat(file.fileno())
            total = status.st_size if stat.S_ISREG(status.st_mode) else None
            size = min(_BATCH_BYTES, self._client.settings.limits.body // 2)
            count = min(_BATCH, self._client.settings.limits.batch)
            pending = batches(self._with_defaults(read_lines(file)), count=count, size=size)
            # A daemon thread: a read from a pipe may block forever, and Ctrl-C must still end the process.
            while batch := await in_daemon(lambda: next(pending, None), name="import-reader"):
                await self._remember(batch)
                show(batch[-1].offset, total)

    def answer(self) -> CommandAnswer:
        """The counts so far."""
        counts = {
            "added": self.added, "already_there": self.already, "deleted_left_out": self.left_out,
            "failed": self.failed,
        }  # fmt: skip
        left_out = f"{self.left_out} deleted ones left out, " if self.left_out else ""
        line = f"{self.added} added, {self.already} already there, {left_out}{self.failed} failed."
        return CommandAnswer(counts, line, failed=bool(self.failed))

    def _with_defaults(self, lines: Iterator[Line]) -> Iterator[Line]:
        for line in lines:
            line.memory.setdefault("user", self._user)
            if self._app is not None:
                line.memory.setdefault("app", self._app)
            yield line

    async def _remember(self, lines: list[Line]) -> None:
        if lines[0].problem is not None:
            self._report(lines[0], lines[0].problem)
            return
        if lines[0].state == "deleted":
            self.left_out += 1
            return
        try:
            results = await self._send(lines) if lines[0].state == "active" else [await self._add_inactive(lines[0])]
        except _OF_THE_LINES as error:
            if len(lines) == 1:
                self._report(lines[0], error.message)
                return
            # One invalid line makes the whole request fail. Splitting it in half finds the line in a few requests.
            middle = len(lines) // 2
            await self._remember(lines[:middle])
            await self._remember(lines[middle:])
            return
        for line, result in zip(lines, results, strict=True):
            if "error" in result:
                self._report(line, result["detail"])
            elif result["event"] == "NONE":
                self.already += 1
            else:
                self.added += 1

    async def _send(self, lines: list[Line]) -> list[dict[str, Any]]:
        memories = [
            {name: value for name, value in line.memory.items() if name not in ("user", "state")} for line in lines
        ]
        body = {"user_id": lines[0].memory["user"], "memories": memories}
        try:
            answer = await self._patiently(lines[0], "POST", "/api/v1/memories/batch", body=body)
        except BatchRefused as error:
            return [{"error": each.code, "detail": each.message} for _, each in sorted(error.refused.items())]
        return list(answer["results"])

    async def _add_inactive(self, line: Line) -> dict[str, Any]:
        """Stores a line that is not active, unless it exists already, and sets its state."""
        user = line.memory["user"]
        if duplicate := await self._find_duplicate(line):
            return {"id": duplicate, "event": "NONE"}
        [result] = await self._send([line])
        if result.get("event") == "ADD" or await self._was_interrupted(line, result):
            body = {"user_id": user, "memory_ids": [result["id"]], "state": line.state}
            await self._patiently(line, "POST", "/api/v1/memories/actions/pause", body=body)
        return result

    async def _find_duplicate(self, line: Line) -> str | None:
        """The id of a memory with the same state and text. The service itself compares only active memories."""
        memory = line.memory
        text = memory["text"]
        if self._client.settings.capture.secrets == "redact":
            text = redacted(text)
        params = {
            "user_id": memory["user"],
            "state": line.state,
            "namespace": memory.get("namespace", "default"),
            "search_query": text[:_COMPARED],
            "size": 100,
            "page": 1,
        }
        app = memory.get("app") or await self._app_of_nobody(line)
        while True:
            try:
                answer = await self._patiently(line, "GET", "/api/v1/memories", params=params)
            except NotFound:  # the user is new
                return None
            for item in answer["items"]:
                if (normal_form(item["content"]), item["app_name"]) == (normal_form(text), app):
                    return str(item["id"])
            if params["page"] >= answer["pages"]:
                return None
            params["page"] += 1

    async def _app_of_nobody(self, line: Line) -> str:
        """The app that writes lines that name none."""
        if self._default_app is None:
            me = await self._patiently(line, "GET", "/api/v1/me")
            self._default_app = str(me["app"])
        return self._default_app

    async def _was_interrupted(self, line: Line, result: dict[str, Any]) -> bool:
        """Returns True if an interrupted run added the active memory with this text but did not set its state yet."""
        created = line.memory.get("created_at")
        if "error" in result or created is None:
            return False
        params = {"user_id": line.memory["user"]}
        duplicate = await self._patiently(line, "GET", f"/api/v1/memories/{result['id']}", params=params)
        return bool(duplicate["state"] == "active" and duplicate["created_at"] == _seconds(created))

    async def _patiently(self, line: Line, method: str, path: str, **request: Any) -> Any:
        for attempt in range(_RETRIES):
            try:
                return await self._client.call(method, path, **request)
            except Unavailable as error:
                if attempt == _RETRIES - 1:
                    again = "run the command again; it stores nothing twice"
                    raise Unavailable(f"line {line.number}: {error.message}; {again}") from error
                pause = min(_MAX_PAUSE, max(error.retry_after, 0.25 * 2**attempt))
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads retries, hides nothing
        raise AssertionError("unreachable")

    def _report(self, line: Line, problem: str) -> None:
        self.failed += 1
        print(f"line {line.number}: {' '.join(problem.split())}", file=sys.stderr)


def _seconds(moment: str | float) -> int:
    """The whole seconds since 1970 of a time from a line."""
    if isinstance(moment, str):
        value = datetime.fromisoformat(moment)
        return epoch_seconds(value if value.tzinfo else value.replace(tzinfo=UTC))
    return math.floor(moment)


def _refuse_other_kinds(name: str, file: BinaryIO) -> None:
    """Refuses a file that holds no JSON Lines, and says what can be done with it.

    Raises:
        SetupError: it is of another kind that is known.
    """
    start = cast(io.BufferedReader, file).peek(_LOOK)
    text = start.lstrip(_BLANK)
    if is_json_lines(text):
        return
    hint = f"`openmemory import openmemory {name}`"
    if is_sqlite(start) or is_zip(start):
        kind = foreign_zip(file, TABLES) if is_zip(start) and file.seekable() else None
    else:
        first = text.partition(b"\n")[0]
        kind, hint = foreign_json(first if first.rstrip().endswith(b"}") else text), f"`openmemory import mem0 {name}`"
        if kind is None and not text.startswith((b"[", b"{")) and b"\n{" not in text:
            kind = foreign_text(start)
        if kind is None and not text.startswith(b"["):
            return  # lines, of which the first is broken
    if kind is not None:
        raise SetupError(f"{name}: is {kind.name}, which cannot be imported as it is", hint=kind.remedy)
    raise SetupError(f"{name}: must be JSON Lines, with a memory in each line", hint=hint)


_LOOK = 64 * 1024
_BLANK = b"\xef\xbb\xbf \t\r\n"


@contextmanager
def _open_source(name: str) -> Iterator[BinaryIO]:
    try:
        # Not sys.stdin.buffer: the interpreter cannot exit while a thread waits in it.
        file = open(0, "rb", _LOOK, closefd=False) if name == "-" else Path(name).open("rb", _LOOK)  # noqa: SIM115
    except OSError as error:
        raise SetupError(f"{name}: {error.strerror}") from None
    try:
        yield file
    except IsADirectoryError:
        raise SetupError(f"{name}: is a folder") from None
    finally:
        if name != "-":
            file.close()
