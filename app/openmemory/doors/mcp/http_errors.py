"""Error responses of the MCP endpoints."""

from __future__ import annotations

import math

from starlette.responses import JSONResponse

from openmemory.errors import OpenMemoryError, TooMany, Unavailable

_CODES = {
    400: "invalid",
    401: "unauthenticated",
    404: "session_not_found",
    405: "method_not_allowed",
    429: "too_many_messages",
    503: "too_many_sessions",
}


def refuse(
    status: int,
    message: str,
    *,
    hint: str | None = None,
    allow: str | None = None,
    code: str | None = None,
    retry_after: int | None = None,
) -> JSONResponse:
    """Returns an error in the format of all others; `retry_after` is in seconds."""
    headers = {"Allow": allow} if allow else {}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return JSONResponse({"error": code or _CODES[status], "detail": message, "hint": hint}, status, headers)


def error_response(status: int, error: OpenMemoryError) -> JSONResponse:
    """Returns the response for an expected failure."""
    wait = math.ceil(error.retry_after) if isinstance(error, TooMany | Unavailable) else None
    return refuse(status, error.message, hint=error.hint, code=error.code, retry_after=wait)


def no_session() -> JSONResponse:
    """Returns the response for a session that is unknown, another's, of a dead process, or over: never a success."""
    return refuse(404, "Could not find session", hint="Connect again: the stream of this session has ended.")
