"""JSON limits: counts the values of a body before parsing it, as 8 MB of `{},` become 170 MB of Python objects."""

from __future__ import annotations

import re

_STRING_OR_MARK = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[,\[{]', re.DOTALL)


def more_than(limit: int, body: bytes) -> bool:
    """Returns True if a body has more than `limit` values, not counting the keys of objects.

    A value is either the first one or follows an opening bracket or a comma. Brackets and commas within strings
    are excluded only if the total exceeds the limit. Invalid JSON is detected by the parser later.
    """
    if len(body) <= limit or body.count(b",") + body.count(b"[") + body.count(b"{") < limit:
        return False
    values = strings = 0
    for match in _STRING_OR_MARK.finditer(body):
        if body[match.start()] == 0x22:
            strings += 1
        else:
            values += 1
        # In JSON every string is a value or the key of one.
        if values >= limit or strings > 2 * limit:
            return True
    return False
