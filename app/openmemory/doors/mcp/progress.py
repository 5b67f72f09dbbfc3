"""Reports the progress of a capture to clients that ask for it with a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic_core import from_json
from starlette.datastructures import Headers
from starlette.types import Scope

from openmemory.capture.status import Status

Send = Callable[[float, float | None, str | None], Awaitable[None]]
"""Sends `notifications/progress` with progress, total and words; sends nothing to a client without a token."""

SLOW = ("add_memories",)
"""Tools that report their progress."""

_WORDS = {
    Status.PENDING: "The text is kept and waits for the language model",
    Status.DONE: "Done",
    Status.FAILED: "Failed: the text is kept",
    Status.UNDONE: "Cancelled",
}
_sender: ContextVar[Send | None] = ContextVar("progress of the call under way", default=None)


@contextmanager
def sending(send: Send) -> Iterator[None]:
    """Sends the progress of the call in the block with `send`."""
    token = _sender.set(send)
    try:
        yield
    finally:
        _sender.reset(token)


class Steps:
    """Reports each step of a capture once, with numbers that rise as the protocol requires."""

    def __init__(self) -> None:
        self._send = _sender.get()
        self._messages: list[str] = []

    async def report(self, status: Status, attempt: int) -> None:
        """Reports the status; `attempt` is the number of the current or the last attempt."""
        words = f"Asking the language model (attempt {attempt})" if status is Status.WORKING else _WORDS[status]
        if self._send is None or words in self._messages[-1:]:
            return
        self._messages.append(words)
        await self._send(len(self._messages), None, words)


def reports_progress(scope: Scope, body: bytes) -> bool:
    """Returns True if a message asks a tool for progress that it can report, and its client accepts an event stream."""
    if b'"progressToken"' not in body or "text/event-stream" not in Headers(scope=scope).get("accept", ""):
        return False
    message: dict[str, Any] = from_json(body)
    params = message.get("params") or {}
    meta = params.get("_meta")
    asks = isinstance(meta, dict) and isinstance(meta.get("progressToken"), str | int)
    return asks and message.get("method") == "tools/call" and params.get("name") in SLOW
