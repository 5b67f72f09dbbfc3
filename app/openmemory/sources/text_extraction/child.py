"""The process that reads one document: the file on standard input, JSON on standard output.

It has little memory and time, so that a document which exhausts its reader ends this process and nothing else.
"""

from __future__ import annotations

import io
import json
import sys

from openmemory.sources.text_extraction.formats import Unreadable, format_of, parts

MAX_CHARACTERS = 2_000_000
"""The number of characters of a document that are read."""

MEMORY = 1024 * 1024 * 1024
SECONDS = 60


def main() -> int:
    """Reads the document, whose name is the first argument. Returns 0, or 3 if it cannot be read."""
    _limit()
    try:
        answer = read(sys.argv[1], sys.stdin.buffer.read())
        code = 0
    except Unreadable as error:
        answer, code = {"error": str(error)}, 3
    sys.stdout.buffer.write(json.dumps(answer).encode("ascii"))
    sys.stdout.buffer.flush()
    return code


def read(name: str, data: bytes) -> dict[str, object]:
    """The format and the parts of a document, no longer than `MAX_CHARACTERS`.

    Raises:
        Unreadable: it cannot be read.
    """
    file = io.BytesIO(data)
    form = format_of(name, file)
    texts, remaining, cut = list[tuple[str, str | None]](), MAX_CHARACTERS, False
    for part in parts(form, file):
        # Half of a pair of surrogates is no character, and no database takes it.
        text = part.text.encode("utf-8", "replace").decode("utf-8")
        if len(text) > remaining:
            text, cut = text[:remaining], True
        texts.append((text, part.heading))
        remaining -= len(text)
        if cut:
            break
    return {**form._asdict(), "parts": texts, "cut": cut}


def _limit() -> None:
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":  # elsewhere the address space cannot be limited
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


if __name__ == "__main__":
    sys.exit(main())
