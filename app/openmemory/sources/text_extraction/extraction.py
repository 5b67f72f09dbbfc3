"""Reads the text of documents in processes of their own, with limits on memory, time and output."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import BinaryIO

from openmemory.embedded.reader import run_reader
from openmemory.errors import Invalid
from openmemory.sources.text_extraction.formats import TextPart

TIMEOUT = 60.0
"""The seconds after which a reader is ended."""

_AT_ONCE = 2
_MAX_OUTPUT = 32 * 1024 * 1024
_CHILD = "openmemory.sources.text_extraction.child"


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a document. `lines`: its lines are those of the file. `cut`: the end is missing."""

    media_type: str
    language: str
    lines: bool
    parts: list[TextPart]
    cut: bool


class TextExtraction:
    """Extracts the texts of documents, a few at a time."""

    def __init__(self, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def extract(self, name: str, file: BinaryIO) -> Extracted:
        """The text of a document that is in a file of the operating system. `name` determines the format of plain text.

        Raises:
            Invalid: the document cannot be read, or needs more memory or time than it may have.
        """
        async with self._turns:
            file.seek(0)
            code, output = await run_reader(_CHILD, name, file.fileno(), within=self._timeout, most=_MAX_OUTPUT)
        try:
            answer = json.loads(output)
        except ValueError:
            problem = "cannot be read with the memory and the time that a document may take"
            raise Invalid("file", problem, code="document_too_complex") from None
        if code != 0:
            raise Invalid("file", answer["error"], code="document_unreadable")
        return Extracted(**answer | {"parts": [TextPart(*part) for part in answer["parts"]]})
