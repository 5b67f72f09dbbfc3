"""Sends requests that hold rubbish in one place, and looks whether they are refused as they should be."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlencode

import httpx
from fastapi import FastAPI, Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import request_body_to_args, request_params_to_args
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import PydanticUndefined, from_json
from starlette.routing import Match

HEADERS = [(b"host", b"localhost:8765"), (b"accept", b"*/*")]


def is_a_problem(answer: httpx.Response) -> bool:
    told = answer.json()
    told.pop("refused", None)  # of a batch
    return list(told) == ["error", "detail", "hint"] and bool(told["detail"])


class Rubbish:
    """Asks the model of a route first, because a request costs a hundred times what a model costs.

    The models refuse most rubbish. The client sends the first value of each place that the model refuses, and has to
    get the answer that the model's refusal leads to. Whatever a model takes is sent too, because it reaches the
    services; past the client, which would take half of the time.
    """

    def __init__(self, app: FastAPI, client: httpx.AsyncClient) -> None:
        self._app = app
        self._client = client
        self._routes = {
            (method.lower(), route.path_format): route
            for route in app.routes
            if isinstance(route, APIRoute)
            for method in route.methods
        }
        self._refused: set[tuple[str, str, str]] = set()
        self.asked: Counter[str] = Counter()

    async def send(
        self, method: str, path: str, place: str, url: str, *, params: Mapping[str, str] | None = None, body: Any = None
    ) -> None:
        """Sends a request with rubbish in this place, unless the model refuses it as it has refused other rubbish."""
        at = (method, path, place)
        content = b"" if body is None else json.dumps(body).encode()
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method.upper(),
            "scheme": "http", "root_path": "", "path": unquote(url), "raw_path": url.encode(),
            "query_string": urlencode(params or {}).encode(), "server": ("localhost", 8765),
            "client": ("127.0.0.1", 123), "headers": [*HEADERS, (b"content-length", b"%d" % len(content))],
        }  # fmt: skip
        if content:
            scope["headers"].append((b"content-type", b"application/json"))
        refusal = await self._refusal(self._routes[method, path], scope, content)
        self.asked["model"] += 1
        if refusal is None:
            answer = await _answer(self._app, scope, content)
        else:
            assert refusal.status_code == 422, at
            assert is_a_problem(refusal), (*at, refusal.text)
            if at in self._refused:
                return
            self._refused.add(at)
            answer = await self._client.request(method, url, params=params, json=body)
            assert (answer.status_code, answer.json()) == (refusal.status_code, refusal.json()), at
        self.asked["HTTP"] += 1
        assert answer.status_code < 500, (*at, url[:200], answer.text)
        assert answer.is_success or is_a_problem(answer), (*at, url[:200], answer.text)

    async def _refusal(self, route: APIRoute, scope: dict[str, Any], content: bytes) -> httpx.Response | None:
        """Returns the answer to a request that the model of the route refuses, or None if it refuses nothing."""
        match, found = route.matches(scope)
        if match is not Match.FULL:
            return None
        body = from_json(content, allow_inf_nan=False) if content else PydanticUndefined
        errors = await _errors(route.dependant, Request(scope | found), body, route._embed_body_fields)
        if not errors:
            return None
        handler: Any = self._app.exception_handlers[RequestValidationError]
        told = await handler(Request(scope), RequestValidationError(errors))
        return httpx.Response(told.status_code, content=told.body)


async def _errors(dependant: Dependant, request: Request, body: Any, embed: bool) -> list[Any]:
    """Returns what FastAPI finds wrong in a request, in its order."""
    errors = [each for one in dependant.dependencies for each in await _errors(one, request, body, embed)]
    for fields, sent in (
        (dependant.path_params, request.path_params),
        (dependant.query_params, request.query_params),
        (dependant.header_params, request.headers),
    ):
        if fields:
            errors += request_params_to_args(fields, sent)[1]
    if fields := dependant.body_params:
        errors += (await request_body_to_args(body_fields=fields, received_body=body, embed_body_fields=embed))[1]
    return errors


async def _answer(app: FastAPI, scope: dict[str, Any], content: bytes) -> httpx.Response:
    """Returns the answer of the whole application."""
    status, parts, unread, ended = 0, [], [content], asyncio.Event()

    async def receive() -> dict[str, Any]:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        await ended.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                ended.set()

    await app(scope, receive, send)
    return httpx.Response(status, content=b"".join(parts))
