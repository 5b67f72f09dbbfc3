"""Checks that a message is one JSON-RPC request, notification or response, for every endpoint.

The SDK treats a request with an unusable id as a notification, so nobody would learn that it was not done. Its errors
for other invalid messages repeat parts of them.
"""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from openmemory.serialization.surrogates import replace_in_body

PARSE_ERROR, INVALID_REQUEST = -32700, -32600


async def read(scope: Scope, receive: Receive, send: Send) -> Receive | None:
    """Returns a `receive` that replays the posted body; None if the body is not a message and was refused."""
    if scope["method"] != "POST":
        return receive
    body = await replace_in_body(await Request(scope, receive).body())
    if (refusal := malformed(body)) is not None:
        await refusal(scope, receive, send)
        return None
    return again(body, receive)


def again(body: bytes, receive: Receive) -> Receive:
    """Returns a `receive` that replays a body already read and then continues with `receive`."""
    unread = [body]

    async def read_again() -> Message:
        return {"type": "http.request", "body": unread.pop(), "more_body": False} if unread else await receive()

    return read_again


def malformed(body: bytes) -> Response | None:
    """Returns the response to a body that is not a message; None if it is one."""
    try:
        message = from_json(body, allow_inf_nan=False)
    except ValueError as wrong:
        return not_json(wrong)
    reason = problem(message)
    return None if reason is None else invalid(reason, message)


def not_json(wrong: ValueError) -> Response:
    """Returns the response to a body that is not JSON."""
    return error(PARSE_ERROR, f"Parse error: {wrong}", None)


def invalid(reason: str, message: Any = None) -> Response:
    """Returns the response to JSON that is not a message, with the message's id if it has one."""
    return error(INVALID_REQUEST, f"Invalid request: {reason}", _id(message))


def id_of(body: bytes) -> str | int | None:
    """Returns the id of the message in a body; None if it has no usable one."""
    try:
        return _id(from_json(body))
    except ValueError:
        return None


def error(code: int, words: str, id_: str | int | None, data: Any = None) -> Response:
    """Returns a JSON-RPC error that refuses a request."""
    content = {"code": code, "message": words} | ({} if data is None else {"data": data})
    return JSONResponse({"jsonrpc": "2.0", "id": id_, "error": content}, 400)


def problem(message: Any) -> str | None:
    """Returns the reason why a JSON value is not a message; None if it is one."""
    if not isinstance(message, dict):
        return "a message must be one JSON object; only POST /mcp accepts an array, with protocol version 2025-03-26"
    if message.get("jsonrpc") != "2.0":
        return 'jsonrpc must be "2.0"'
    parts = [part for part in ("method", "result", "error") if part in message]
    if len(parts) != 1:
        return "a message must have exactly one of method, result and error" if parts else "method is required"
    return _problem_of_call(message) if parts == ["method"] else _problem_of_answer(message, parts[0])


def _problem_of_call(message: dict[str, Any]) -> str | None:
    if not isinstance(message["method"], str):
        return "method must be a string"
    if "id" in message and not _is_id(message["id"]):
        return "id must be a string or an integer; leave it out only for a notification"
    return None if isinstance(message.get("params"), dict | None) else "params must be an object"


def _problem_of_answer(message: dict[str, Any], part: str) -> str | None:
    content, id_ = message[part], message.get("id")
    if not isinstance(content, dict):
        return f"{part} must be an object"
    if part == "error" and not (type(content.get("code")) is int and isinstance(content.get("message"), str)):
        return "error must have an integer code and a message"
    unnamed = part == "error" and id_ is None
    return None if unnamed or _is_id(id_) else "id must be that of the request"


def _id(message: Any) -> str | int | None:
    id_ = message.get("id") if isinstance(message, dict) else None
    return id_ if _is_id(id_) else None


def _is_id(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)
