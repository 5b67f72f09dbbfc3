"""Routes that accept an optional trailing slash and take only JSON that every store can hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json

from openmemory.doors.rest.http.errors import documented
from openmemory.serialization.surrogates import replace_in_body

_BROWSER = ("content-type", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest", "referer")
"""A browser sends at least one of these headers with every body. An empty content type counts as sent: a script that
forgot the type would not send the header."""


class JsonRequest(Request):
    """A request whose body is strict JSON: UTF-8, no NaN, finite depth. Halves of surrogate pairs become U+FFFD."""

    async def json(self) -> Any:
        """Returns the decoded body.

        Raises:
            HTTPException: 400, with the position of the first character that is not JSON.
        """
        try:
            return from_json(await replace_in_body(await self.body()), allow_inf_nan=False)
        except ValueError as error:
            raise HTTPException(400, f"body: is not valid JSON: {error}") from None


class JsonRoute(APIRoute):
    """A route that matches its path with and without a trailing slash, and rejects a body of any type other than JSON.

    A missing type is also rejected if the request comes from a browser: a web page may send such a body anywhere
    without permission. Old scripts send their JSON without a type.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + "/?$")

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Returns the handler for requests to this route."""
        answer = super().get_route_handler()
        if self.body_field is None:
            return answer

        async def answer_json(request: Request) -> Response:
            request = JsonRequest(request.scope, request.receive)
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
                label = repr(kind[:80]) if kind else "none"
                checks_type = kind or any(name in request.headers for name in _BROWSER)
                if checks_type and await request.body():
                    raise HTTPException(415, f"Content-Type: must be application/json, not {label}")
            return await answer(request)

        return answer_json


class Router(APIRouter):
    """Routes of one feature. Without a `tag`, each route has its own."""

    def __init__(self, prefix: str, tag: str | None = None) -> None:
        super().__init__(
            prefix=prefix,
            tags=[tag] if tag else None,
            route_class=JsonRoute,
            strict_content_type=False,  # JsonRoute decides
            responses=documented(422, 503),
            generate_unique_id_function=_operation_id,
        )


def _operation_id(route: Any) -> str:
    return str(route.name)
