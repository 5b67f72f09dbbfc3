"""How many JSON values a body has, before any of them is made: eight MB of `{},` become 170 MB of Python objects."""

from __future__ import annotations

import re

_STRING_OR_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


def more_than(limit: int, body: bytes) -> bool:
    """Whether a body has more values than that, keys of objects not counted.

    A value is the first one, or it follows an opening bracket or a comma; those within strings are told apart only when
    there are too many in all. What is no JSON is found out by whoever reads it.
    """
    if len(body) <= limit or body.count(b",") + body.count(b"[") + body.count(b"{") < limit:
        return False
    values = strings = 0
    for found in _STRING_OR_MARK.finditer(body):
        if body[found.start()] == 0x22:
            strings += 1
        else:
            values += 1
        # In JSON each string is a value or the key of one.
        if values >= limit or strings > 2 * limit:
            return True
    return False
