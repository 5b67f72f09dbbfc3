"""JSON that preserves every number exactly as written, even if it exceeds 64 bits.

orjson silently turns a longer integer into a rounded float, and PostgreSQL writes 1e30 as an integer of 31 digits. Here
integers stay exact integers and floats stay floats. Documents without such numbers use orjson's fast path.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import orjson

from openmemory.serialization.surrogates import replace_in_json

_DIGITS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG = b"0" * 19
"""Part of any number that may exceed 64 bits, with all digits mapped to 0. Up to 18 digits always fit."""
_POWER = re.compile(r'"(?:[^"\\]++|\\.)*+"?|(?<![0-9.])-?[0-9.]++e\+[0-9]+')


def has_long_number(raw: bytes) -> bool:
    """Returns True if `raw` contains more consecutive digits, in a number or a text, than orjson handles safely."""
    # Ten times as fast as a regular expression, which looks at every byte separately.
    return len(raw) >= len(_LONG) and _LONG in raw.translate(_DIGITS)


def loads(raw: str | bytes) -> Any:
    """Returns the value of a JSON document. Halves of surrogate pairs become U+FFFD.

    Raises:
        ValueError: it is not JSON (such as NaN), or has an integer of more than 4,300 digits or a float over 1.8e308.
    """
    raw = replace_in_json(raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw)
    if not has_long_number(raw):
        return orjson.loads(raw)
    return json.loads(raw, parse_constant=no_number, parse_float=_finite_float)


def dumps(value: Any, *, indented: bool = False) -> bytes:
    """Returns a value as JSON, compact or `indented` for people. Keys must be strings, as in JSON.

    Raises:
        TypeError: JSON cannot represent it.
    """
    option = orjson.OPT_INDENT_2 if indented else None
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        if not _has_long_integer(value):
            raise
    separators = None if indented else (",", ":")
    try:
        return json.dumps(
            value, ensure_ascii=False, allow_nan=False, indent=2 if indented else None, separators=separators,
            default=_plain,
        ).encode()  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise TypeError(str(error)) from None


def for_jsonb(value: Any) -> str:
    """Like `dumps`, for PostgreSQL, which keeps the decimal point of a float only if it is written without an exponent.

    Raises:
        TypeError: JSON cannot represent it.
    """
    text = dumps(value).decode()
    return _POWER.sub(_written_out, text) if "e+" in text else text


def finite(value: Any) -> tuple[Any, int]:
    """Returns the value with null for every number that JSON cannot represent, and their count. Without such numbers
    it returns the same object."""
    if isinstance(value, float):
        return (value, 0) if math.isfinite(value) else (None, 1)
    if isinstance(value, list):
        made = [finite(each) for each in value]
        count = sum(numbers for _, numbers in made)
        return ([each for each, _ in made] if count else value), count
    if isinstance(value, dict):
        members = {key: finite(each) for key, each in value.items()}
        count = sum(numbers for _, numbers in members.values())
        return ({key: each for key, (each, _) in members.items()} if count else value), count
    return value, 0


def _finite_float(text: str) -> float:
    """Parses a JSON number as a float, for decoders that would otherwise return infinity.

    Raises:
        ValueError: the number is too large for a float.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is over 1.8e308, the largest that a float can be")
    return number


def no_number(name: str) -> NoReturn:
    """Rejects NaN and infinity, which the standard library's decoder would accept.

    Raises:
        ValueError: always.
    """
    raise ValueError(f"{name} is no JSON")


def _written_out(match: re.Match[str]) -> str:
    token = match[0]
    if token.startswith('"'):
        return token
    mantissa, _, power = token.partition("e+")
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}{fraction.ljust(int(power), '0')}.0"  # from 1e16 on, so no digit remains after the point


def _has_long_integer(value: Any) -> bool:
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            pending.extend(each.values())
        elif isinstance(each, list | tuple):
            pending.extend(each)
        elif isinstance(each, int) and not -(2**63) <= each < 2**64:
            return True
    return False


def _plain(value: Any) -> Any:
    """Converts values that orjson serializes and the standard library does not: ids, times."""
    return orjson.loads(orjson.dumps(value))
