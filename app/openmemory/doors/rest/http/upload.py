"""Parses a form with one file and a few short fields as a stream: the file is never held in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastapi import HTTPException, Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from openmemory.errors import Invalid
from openmemory.operations.batches import Problem
from openmemory.uploads.admission import paced

MULTIPART = "multipart/form-data"
ARCHIVES = frozenset({"/api/v1/backup/import", "/api/v1/imports", "/ui/settings/archives"})
"""The paths of imports, the only ones whose bodies may be as large as `limits.backup`."""
DOCUMENTS = "/api/v1/documents"
"""The path of documents, whose bodies may be as large as `limits.document`."""
OVERHEAD = 64 * 1024
"""Bytes that a form may have besides its file: fields, headers of the parts, boundaries."""

_MAX_FIELD_BYTES = 8 * 1024
_MAX_PARTS = 16
_TOGETHER = 1024 * 1024
"""Bytes that are collected before they are written to the file."""


NO_FORM: dict[int | str, dict[str, Any]] = {
    415: {"model": Problem, "description": "The body is no multipart/form-data, or is compressed."}
}
"""The response to a body that is no such form, for OpenAPI."""


def described(file: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Returns the body of a request for OpenAPI: the description of its file, and those of its other fields."""
    texts = {name: {"type": "string", "description": words} for name, words in fields.items()}
    properties = {"file": {"type": "string", "format": "binary", "description": file}, **texts}
    form = {"type": "object", "required": ["file"], "properties": properties}
    return {"requestBody": {"required": True, "content": {MULTIPART: {"schema": form}}}}


class Target(Protocol):
    """The destination of the file."""

    def write(self, data: bytes, /) -> Any:
        """Appends data. Called in a thread."""
        ...


@dataclass(slots=True)
class Form:
    """The parsed form. `filename` is the client's name for the file; nothing is ever opened under that name."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    size: int = 0


@dataclass(slots=True)
class _Part:
    name: str = ""
    filename: str | None = None
    value: bytearray = field(default_factory=bytearray)


def is_multipart(content_type: str) -> bool:
    """Returns True if a body of this type is a form that may hold a file."""
    return content_type.partition(";")[0].strip().lower() == MULTIPART


async def receive(request: Request, name: str, target: Target) -> Form:
    """Reads the form of a request and writes the file in the field `name` to `target`.

    Raises:
        HTTPException: 415: the body is not such a form; 400: the form is malformed.
        Invalid: the file is missing or sent twice, or a field is too long.
        Unavailable: the upload is too slow.
    """
    content_type = request.headers.get("content-type", "")
    if not is_multipart(content_type):
        label = repr(content_type[:80]) if content_type else "none"
        raise HTTPException(415, f"Content-Type: must be {MULTIPART}, not {label}")
    boundary = parse_options_header(content_type)[1].get(b"boundary")
    if not boundary:
        raise HTTPException(400, "body: the boundary of the form is missing in Content-Type")
    reader = _Reader(name)
    try:
        parser = MultipartParser(boundary, reader.callbacks())
        async with paced() as came:  # what follows the last byte is not the client's time
            async for chunk in request.stream():
                came(len(chunk))
                parser.write(chunk)
                if len(reader.data) >= _TOGETHER:
                    await reader.flush(target)
        parser.finalize()
    except FormParserError as error:
        raise HTTPException(400, f"body: is not a valid form: {str(error)[:200]}") from None
    await reader.flush(target)
    if not reader.ended:
        raise HTTPException(400, "body: is not a valid form: it ends too soon")
    if reader.form.filename is None:
        raise Invalid(name, "is required, as a file")
    return reader.form


class _Reader:
    """Assembles what the parser reports."""

    def __init__(self, name: str) -> None:
        self.form = Form()
        self.data = bytearray()
        self.ended = False
        self._name = name
        self._part = _Part()
        self._parts = 0
        self._header = bytearray()
        self._value = bytearray()

    def callbacks(self) -> Any:
        """Returns the callbacks for the parser."""
        handlers: dict[str, Callable[..., None]] = {
            "on_part_begin": self._begin,
            "on_header_begin": self._begin_header,
            "on_header_field": self._add_to(lambda: self._header),
            "on_header_value": self._add_to(lambda: self._value),
            "on_header_end": self._end_header,
            "on_headers_finished": self._look_at_headers,
            "on_part_data": self._take,
            "on_part_end": self._end,
            "on_end": self._finish,
        }
        return handlers

    async def flush(self, target: Target) -> None:
        """Writes the file data received so far."""
        if self.data:
            data, self.data = bytes(self.data), bytearray()
            await asyncio.to_thread(target.write, data)

    def _begin(self) -> None:
        self._part = _Part()
        self._parts += 1
        if self._parts > _MAX_PARTS:
            raise Invalid("body", f"has more than {_MAX_PARTS} parts")

    def _begin_header(self) -> None:
        self._header.clear()
        self._value.clear()

    def _add_to(self, get_buffer: Callable[[], bytearray]) -> Callable[[bytes, int, int], None]:
        def add(data: bytes, start: int, end: int) -> None:
            into = get_buffer()
            into += data[start:end]

        return add

    def _end_header(self) -> None:
        if self._header.lower() != b"content-disposition":
            return
        _, options = parse_options_header(bytes(self._value))
        self._part.name = options.get(b"name", b"").decode("utf-8", "replace")
        if b"filename" in options:
            self._part.filename = options[b"filename"].decode("utf-8", "replace")

    def _look_at_headers(self) -> None:
        part = self._part
        if part.name != self._name:
            return
        if part.filename is None:
            raise Invalid(self._name, "must be sent as a file, with a filename")
        if self.form.filename is not None:
            raise Invalid(self._name, "is there twice")
        self.form.filename = part.filename

    def _take(self, data: bytes, start: int, end: int) -> None:
        if self._part.name == self._name:
            self.data += data[start:end]
            self.form.size += end - start
            return
        self._part.value += data[start:end]
        if len(self._part.value) > _MAX_FIELD_BYTES:
            raise Invalid(self._part.name[:80] or "body", f"has more than {_MAX_FIELD_BYTES:,} bytes")

    def _end(self) -> None:
        part = self._part
        if part.name == self._name:
            return
        if part.name in self.form.fields:
            raise Invalid(part.name[:80] or "body", "is there twice")
        try:
            self.form.fields[part.name] = part.value.decode("utf-8")
        except UnicodeDecodeError:
            raise Invalid(part.name[:80] or "body", "must be text in UTF-8") from None

    def _finish(self) -> None:
        self.ended = True
