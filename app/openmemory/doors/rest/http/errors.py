"""Error responses over HTTP: one body for all of them, `{"error", "detail", "hint"}`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from openmemory.doors.rest.http.challenge import www_authenticate
from openmemory.errors import (
    BatchRefused,
    ConflictError,
    Forbidden,
    Invalid,
    NotFound,
    OpenMemoryError,
    TooLarge,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from openmemory.identity.principal import InsufficientScope
from openmemory.identity.request import request_context_of
from openmemory.operations.batches import ItemProblem, Problem
from openmemory.serialization.invalid_fields import not_valid


class BatchProblem(Problem):
    """A batch of which nothing is stored."""

    refused: list[ItemProblem] = Field(default=[], description="The refused items, if they are the reason.")


# TooLarge is a subclass of Invalid, so it is checked first.
_STATUS: tuple[tuple[type[OpenMemoryError], int], ...] = (
    (NotFound, 404),
    (TooLarge, 413),
    (Invalid, 422),
    (Unauthenticated, 401),
    (Forbidden, 403),
    (ConflictError, 409),
    (TooMany, 429),
    (Unavailable, 503),
)
_CODES = {
    400: "bad_request",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
}
MEANINGS = {
    400: "The request contradicts itself or is not JSON.",
    401: "The credential is missing, wrong or has ended.",
    403: "The credential is valid but does not allow this: a paused app, a missing scope, another user.",
    404: "It does not exist, or belongs to another user.",
    409: "The request conflicts with the current state.",
    413: "Larger than a limit allows; `detail` names the setting.",
    415: "The body is not declared as application/json, or is compressed.",
    421: "The Host header does not name this service.",
    422: "A field is invalid; `detail` names it and says what would be valid.",
    429: "Too many requests; `Retry-After` says when to try again.",
    503: "A dependency does not answer; `Retry-After` says when to try again.",
}
"""The meaning of each error status."""
NOT_STORED: dict[int | str, dict[str, Any]] = {422: {"model": BatchProblem, "description": MEANINGS[422]}}
"""The response to a batch of which nothing is stored, for OpenAPI."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Returns the error responses of an operation, for its OpenAPI description."""
    return {status: {"model": Problem, "description": MEANINGS[status]} for status in statuses}


def problem(
    status: int,
    code: str,
    detail: str,
    hint: str | None = None,
    headers: Mapping[str, str] | None = None,
    **more: Any,
) -> Response:
    """Returns an error response. `more` holds additional fields of the body."""
    # ASCII, because a message may repeat input that cannot be encoded in UTF-8.
    body = json.dumps({"error": code, "detail": detail, "hint": hint, **more}).encode()
    return Response(body, status, headers, media_type="application/json")


def add_error_handlers(app: FastAPI, methods: Mapping[str, str]) -> None:
    """Makes every expected failure of `app` answer in the common format. `methods` holds those of each path."""
    app.state.allowed = methods
    app.add_exception_handler(OpenMemoryError, _handle_expected)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)


async def _handle_expected(request: Request, error: Exception) -> Response:
    assert isinstance(error, OpenMemoryError)
    principal = request_context_of(request.scope).principal
    if principal is None:  # a public address
        return error_response(error)
    services = request.app.state.services
    try:
        ids = [UUID(value) for value in request.path_params.values() if _UUID.fullmatch(str(value))]
        what = f"{request.method} {getattr(request.scope.get('route'), 'path', '')}"
        await services.denials.record(principal, error, what, ids)
    except Unavailable as away:
        return error_response(away)
    answer = error_response(error)
    if isinstance(error, InsufficientScope):
        answer.headers["WWW-Authenticate"] = www_authenticate(
            services.settings, error=error.code, scope=error.scope, path=request.url.path, description=error.message
        )
    return answer


_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def error_response(error: OpenMemoryError) -> Response:
    """Returns the response for an expected failure."""
    status = next((status for base, status in _STATUS if isinstance(error, base)), 500)
    headers: dict[str, str] = {}
    if isinstance(error, Unavailable | TooMany):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after)))
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    more: dict[str, Any] = {}
    if isinstance(error, BatchRefused):
        more["refused"] = [ItemProblem.of(index, each).model_dump() for index, each in error.refused.items()]
    return problem(status, error.code, error.message, error.hint, headers, **more)


async def _not_valid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return problem(422, "invalid", not_valid(error.errors()))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = error.headers
    if error.status_code == 405:
        # The framework lists the methods of one route, but a path may have several routes.
        methods = request.app.state.allowed.get(getattr(request.scope.get("route"), "path", ""))
        headers = headers if methods is None else {"Allow": methods}
    code = _CODES.get(error.status_code, "error")
    hint = "GET /docs lists every path." if error.status_code in (404, 405) else None
    return problem(error.status_code, code, str(error.detail), hint, headers)
