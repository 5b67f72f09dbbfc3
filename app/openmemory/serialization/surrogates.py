"""Halves of surrogate pairs, which a cut text leaves in JSON and no store can hold. U+FFFD takes their place."""

from __future__ import annotations

import re
from typing import Any

_PIECE = re.compile(
    rb"""
    ((?: [^\\\xed]++ | \\[^u] | \\u(?![dD][89a-fA-F][0-9a-fA-F]{2}) | \xed(?![\xa0-\xbf][\x80-\xbf])
        | \\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2} )++)
    | ((?: \\u[dD][c-fC-F][0-9a-fA-F]{2}
        | \\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2}) )++)
    | ((?: \xed[\xa0-\xbf][\x80-\xbf] )++)
    """,
    re.VERBOSE,
)
"""Everything up to the next half, or halves as escapes, or halves as bytes, which no UTF-8 may have."""
_LARGE = 65_536


def replace_in_json(raw: bytes) -> bytes:
    """Returns a JSON document with U+FFFD in place of each half of a surrogate pair. Whole pairs stay characters.

    Works on the bytes, so that every number keeps its digits, whichever decoder reads them.
    """
    return _PIECE.sub(_replaced, raw) if b"\\u" in raw or b"\xed" in raw else raw


async def replace_in_body(raw: bytes) -> bytes:
    """Does the same with the body of a request. A large one holds millions of halves and does not block the loop."""
    import asyncio  # commands use this module, and import nothing that they do not need

    return replace_in_json(raw) if len(raw) < _LARGE else await asyncio.to_thread(replace_in_json, raw)


def replace_in(value: Any) -> Any:
    """Returns a text with U+FFFD in place of each half of a surrogate pair, or a list or object with such texts."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, list | tuple):
        return type(value)(map(replace_in, value))
    if isinstance(value, dict):
        return {replace_in(key): replace_in(each) for key, each in value.items()}
    return value


def _replaced(piece: re.Match[bytes]) -> bytes:
    same, escaped, encoded = piece.groups()
    if same is not None:
        return bytes(same)
    return rb"\ufffd" * (len(escaped) // 6) if escaped is not None else "\ufffd".encode() * (len(encoded) // 3)
