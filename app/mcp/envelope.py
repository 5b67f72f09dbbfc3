"""What every message must be, whichever door it comes through: one JSON-RPC request, notification or response.

The SDK takes a request whose id it cannot use for a notification, so that nobody would hear that it was not done; and
what it says of other messages repeats parts of them.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


def malformed(body: bytes) -> Response | None:
    """The answer to a body that is no message; None if it is one."""
    try:
        message = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        return _error(PARSE_ERROR, f"Parse error: {error}", None)
    problem = _problem(message)
    if problem is None:
        return None
    id_ = message.get("id") if isinstance(message, dict) else None
    return _error(INVALID_REQUEST, f"Invalid request: {problem}", id_ if _is_id(id_) else None)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was read once more, and then like `receive`."""
    unread = [body]

    async def again() -> Message:
        return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

    return again


def _problem(message: Any) -> str | None:
    if not isinstance(message, dict):
        return "a message is one JSON object; batches are not taken"
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    if "method" not in message:
        return None if "result" in message or "error" in message else "method is required"
    if not isinstance(message["method"], str):
        return "method must be a string"
    if "id" in message and not _is_id(message["id"]):
        return "id must be a string or a whole number; only a notification has none"
    if not isinstance(message.get("params"), dict | None):
        return "params must be an object"
    return None


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _error(code: int, words: str, id_: Any) -> Response:
    return JSONResponse({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": words}}, 400)
