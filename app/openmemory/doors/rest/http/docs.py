"""The API documentation page: Swagger UI served from this machine, so that no foreign script calls the API."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import FastAPI, HTTPException, Request, Response

from openmemory.doors.rest.http.hardening import PAGE

_HTML = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>OpenMemory API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="data:,">
</head>
<body>
<div id="swagger-ui"></div>
<noscript>This page needs JavaScript; <a href="openapi.json">openapi.json</a> says the same.</noscript>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

_START = """\
// The key of `/docs?key=KEY`, if this service wants one.
const key = new URLSearchParams(location.search).get("key");
const page = SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  requestInterceptor: (request) => {
    if (key && request.loadSpec) request.headers["X-API-Key"] = key;
    return request;
  },
  onComplete: () => {
    if (key) page.preauthorizeApiKey("header", key);
  },
});
"""

_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_KEPT = "private, no-cache"
"""Browsers revalidate their copy each time: an upgrade shows at once, and the 1.5 MB are sent only once."""

FILES = frozenset({"/docs/start.js", "/docs/swagger-ui-bundle.js", "/docs/swagger-ui.css"})
"""The files that the page loads. They are public, because they are the same everywhere."""


class _File(NamedTuple):
    body: bytes
    kind: str
    tag: str


def add_docs(app: FastAPI) -> None:
    """Adds the page at `/docs` and the files that it loads."""
    cache: dict[str, _File] = {}

    async def docs() -> Response:
        return Response(_HTML, media_type="text/html", headers=PAGE | {"Cache-Control": "no-store"})

    async def part(name: str, request: Request) -> Response:
        if f"/docs/{name}" not in FILES:
            raise HTTPException(404, "Not Found")
        if name not in cache:
            cache[name] = _read(name)
        body, kind, tag = cache[name]
        headers = {"ETag": tag, "Cache-Control": _KEPT}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    app.add_api_route("/docs", docs, include_in_schema=False)
    app.add_api_route("/docs/{name}", part, include_in_schema=False)


def _read(name: str) -> _File:
    body = _START.encode() if name == "start.js" else (files("fastapi_offline") / "static" / name).read_bytes()
    return _File(body, _TYPES[name.rpartition(".")[2]], f'"{hashlib.sha256(body).hexdigest()[:32]}"')
