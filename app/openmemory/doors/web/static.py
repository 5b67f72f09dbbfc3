"""The files that pages load: our own, and the vendored libraries with their licences."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from typing import NamedTuple

from fastapi import HTTPException
from starlette.responses import Response

PREFIX = "/ui/static/"
"""The addresses of the files. They need no credential: they are the same everywhere."""

_NAMES = {
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "scripts.js": "text/javascript; charset=utf-8",
}
_SCRIPTS = ("vendor/htmx.min.js", "vendor/hx-sse.min.js", "app.js")
"""The parts of `scripts.js`. They are one file because htmx starts as soon as it has loaded. It would miss an extension
that loads later."""


class _StaticFile(NamedTuple):
    body: bytes
    kind: str
    tag: str


def _read(name: str) -> _StaticFile:
    parts = _SCRIPTS if name == "scripts.js" else (name,)
    folder = files("openmemory.doors.web") / "static"
    body = b"\n;\n".join(folder.joinpath(*part.split("/")).read_bytes() for part in parts)
    return _StaticFile(body, _NAMES[name], hashlib.sha256(body).hexdigest()[:16])


_files = {name: _read(name) for name in _NAMES}
_paths = {f"{file.tag}/{name}": file for name, file in _files.items()}


def path(name: str) -> str:
    """Returns the path of a file below `/ui/`. It holds the hash of the file, so a browser may keep it for ever."""
    return f"static/{_files[name].tag}/{name}"


async def get_file(file: str) -> Response:
    """Answers with a file."""
    static_file = _paths.get(file)
    if static_file is None:
        raise HTTPException(404, "Not Found")
    return Response(
        static_file.body, media_type=static_file.kind, headers={"Cache-Control": "public, max-age=31536000, immutable"}
    )
