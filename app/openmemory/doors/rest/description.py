"""Adds to the OpenAPI description what the routes do not declare: the key, and the refusals of the guard."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from openmemory.doors.rest.http.challenge import WELL_KNOWN
from openmemory.doors.rest.http.errors import MEANINGS
from openmemory.doors.rest.http.origins import PROBES

_EVERYWHERE = (403, 421)
_WITH_KEY = (400, 401, 413, 429)
_WITH_BODY = (415,)

_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
_RETRY = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}}}
_HEADERS = {
    401: {"WWW-Authenticate": {"description": "How to prove who asks.", "schema": {"type": "string"}}},
    429: _RETRY,
    503: _RETRY,
}


def describe_guard(app: FastAPI) -> None:
    """Adds the key, which the guard checks and no route declares, and the guard's responses to the OpenAPI schema."""
    described = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        schema = described()
        schema["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
        }
        # The empty alternative, because a service that listens on loopback only may have no key.
        schema["security"] = [{"bearer": []}, {"header": []}, {}]
        for path, operations in schema["paths"].items():
            for operation in operations.values():
                _describe(operation, open_to_all=path in PROBES or path.startswith(WELL_KNOWN))
        return schema

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(operation: dict[str, Any], *, open_to_all: bool) -> None:
    statuses = _EVERYWHERE + (() if open_to_all else _WITH_KEY) + (_WITH_BODY if "requestBody" in operation else ())
    if open_to_all:
        operation["security"] = []
    responses = operation["responses"]
    for status in statuses:
        responses.setdefault(str(status), {"description": MEANINGS[status], "content": _PROBLEM})
    for status, headers in _HEADERS.items():
        if str(status) in responses:
            responses[str(status)]["headers"] = headers
    operation["responses"] = dict(sorted(responses.items()))
