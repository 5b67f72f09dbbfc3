"""The last requests of a session, from the transcript that the assistant keeps. Imports little: see
`openmemory.cli.hook`."""

from __future__ import annotations

import json
import os
from typing import Any

REQUESTS = 5
"""The number of requests that are kept."""
REQUEST_LENGTH = 500
"""Characters of a request that are kept."""
_TAIL = 2_000_000
"""Bytes at the end of a transcript that are read."""


def last_requests(path: str) -> list[str]:
    """The last requests that the user typed, oldest first, each cut to its length.

    Reads the JSON lines of Claude Code and of Codex. Results of tools, texts of subagents, and what the assistant adds
    between angle brackets or as instructions are no requests.
    """
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        file.seek(max(0, size - _TAIL))
        lines = file.read(_TAIL).splitlines()
    if size > _TAIL:
        del lines[0]  # a part of a line
    found: list[str] = []
    for line in reversed(lines):
        if b'"user"' in line and (text := _request(line)) and text not in found:
            found.append(text)
            if len(found) == REQUESTS:
                break
    return found[::-1]


def _request(line: bytes) -> str:
    try:
        entry = json.loads(line)
    except ValueError:
        return ""
    if not isinstance(entry, dict) or entry.get("isMeta") or entry.get("isSidechain"):
        return ""
    for inner in (entry.get("message"), entry.get("payload")):
        if isinstance(inner, dict) and inner.get("role") == "user":
            text = " ".join(_text(inner.get("content")).split())
            return "" if text.startswith(("<", "#", "[Request interrupted")) else text[:REQUEST_LENGTH]
    return ""


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    if any(isinstance(part, dict) and part.get("type") == "tool_result" for part in parts):
        return ""
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))
