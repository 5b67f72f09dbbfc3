"""Counts the messages in progress in an SSE session: a client that sends without reading is stopped at a limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import SessionMessage
from starlette.responses import Response
from starlette.types import Scope

from openmemory.doors.mcp.http_errors import refuse

_KEY = "openmemory.backlog"


class Backlog:
    """Counts each message in turn while it is posted, while it is processed, and while its answer waits for the client
    to read. The count drops whenever such a block is left, so an answer that is never sent cannot keep it up."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._count = 0

    @property
    def full(self) -> bool:
        """True if no further message can be taken now."""
        return self._count >= self._limit

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts one message while the block runs."""
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1


class Answers:
    """The stream to the client. Each answer counts as in progress until the connection has room for it."""

    def __init__(self, stream: WriteStream[SessionMessage], backlog: Backlog) -> None:
        self._stream = stream
        self._backlog = backlog

    async def send(self, item: SessionMessage, /) -> None:
        """Sends one answer."""
        with self._backlog.one():
            await self._stream.send(item)

    async def aclose(self) -> None:
        """Ends the stream."""
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


def attach(scope: Scope, backlog: Backlog) -> None:
    """Stores the backlog of the message's session on the request."""
    scope[_KEY] = backlog


async def count_messages(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """MCP server middleware that counts a message as in progress while it is processed."""
    backlog = None if ctx.request is None else ctx.request.scope.get(_KEY)
    if backlog is None:
        return await call_next(ctx)
    with backlog.one():
        return await call_next(ctx)


def too_many(limit: int) -> Response:
    """Returns the response to a message of a session that has no room for it."""
    return refuse(
        429,
        f"{limit:,} messages of this session wait for an answer, which is the limit (limits.session_messages).",
        hint="Read the stream of the session, then send the message again.",
        retry_after=1,
    )
