"""Messages that no well-meaning client sends, and what must come of each."""

# ruff: noqa: UP031 - JSON is full of braces

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from openmemory.doors.mcp.server import TOOLS

IDS = [
    "1", "0", "-1", "-0", "9" * 30, "-" + "9" * 300, "9" * 4_000, "9" * 5_000, '""', '" "', '"' + "i" * 10_000 + '"',
    '"__proto__"', '"\\u0000"', '"\\ud83d"', '"\\ud83d\\ude00"', '"1"', "1.0", "1.5", "1e400", "-1e400", "1e2", "1E-2",
    "true", "false", "null", "{}", "[]", "[1]", '{"id": 1}', "NaN", "Infinity", "01", "+1", "0x1", "'1'", "",
]  # fmt: skip
"""What stands for an id, as it is written."""

METHODS = [
    '""', '" "', '"no/such"', '"tools/../call"', '"TOOLS/LIST"', '"tools/list\\u0000"', '"__class__"', '"constructor"',
    '"__proto__"', '"rpc.discover"', '"server/discover"', '"' + "m" * 100_000 + '"', '"\\ud83d"', '"' + "é" * 99 + '"',
    "1", "1.5", "true", "null", "[]", "{}", '["ping"]', '{"method": "ping"}', '"resources/list"', '"resources/read"',
    '"resources/templates/list"', '"resources/subscribe"', '"resources/unsubscribe"', '"prompts/list"', '"prompts/get"',
    '"completion/complete"', '"logging/setLevel"', '"sampling/createMessage"', '"elicitation/create"', '"roots/list"',
    '"tasks/list"', '"tasks/get"', '"tasks/cancel"', '"notifications/initialized"', '"notifications/cancelled"',
    '"notifications/progress"', '"notifications/message"', '"notifications/roots/list_changed"', '"notifications/no"',
]  # fmt: skip

VALUES = [
    "null", "true", "false", "0", "-1", "1.5", "1e400", "9" * 400, '""', '" "', '"x"', '"\\u0000"', '"a\\u0000b"',
    '"\\ud83d"', '"../../etc/passwd"', '"..%2f..%2f"', '"\\r\\nX-Injected: 1"', '"%00"', '"${7*7}{{7*7}}"',
    "\"' OR 1=1 --\"",
    '"' + "x" * 300 + '"', '"' + "x" * 20_000 + '"', "[]", "[[]]", "[null]", '["x", 1]', "{}",
    '{"__proto__": {"a": 1}}',
    '{"constructor": {"prototype": {}}}', '{"$ref": "#"}', '{"": ""}', '{"a": ' * 100 + "1" + "}" * 100,
    "[" * 100 + "]" * 100, '["' + '","'.join(["x"] * 2_000) + '"]', '"' + "\u202e" * 9 + '"', '"' + "\ufffe" + '"',
]  # fmt: skip

BROKEN = [
    b"", b" ", b"\x00", b"{", b"}", b"[", b"]", b'"', b"nul", b"true", b"null", b"1", b"1.5", b'"ping"', b"{}", b"[]",
    b"[{}]",
    b"{,}", b"{'jsonrpc': '2.0'}", b'{"jsonrpc": "2.0",}', b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80",
    b"\xf8\x88\x80\x80\x80",
    b"[" * 100_000, b'{"a":' * 100_000, b"[" * 300 + b"]" * 300, b'{"a":' * 300 + b"1" + b"}" * 300, b"-", b"1e",
    b"\\", b"//",
    b"\xef\xbb\xbf" + b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'.encode("utf-16"),
    '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'.encode("utf-16-le"),
    '{"jsonrpc": "2.0", "id": 1, "method": "ping"}'.encode("utf-32-be"),
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}' * 2,
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping"} trailing',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]',
    b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "method": "notifications/initialized"}]',
    b'{"jsonrpc": "2.0", "id": 1, "method": "p\xffng"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "\x01"}}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "id": 2}',
    b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping", "id": 2}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "id": 2.5}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "method": "no/such"}',
    b'{"jsonrpc": "2.0", "id": 1, "result": {}}', b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": ""}}',
    b'{"jsonrpc": "2.0", "id": 1, "error": 1}', b'{"jsonrpc": "2.0", "id": 1.5, "result": {}}',
    b'{"jsonrpc": "2.0", "result": 1}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}}', b'{"jsonrpc": "2.0", "id": 1}', b'{"id": 1}',
    b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', b'{"jsonrpc": 2.0, "id": 1, "method": "ping"}',
    b'{"jsonrpc": null, "id": 1, "method": "ping"}', b'{"id": 1, "method": "ping"}', b'{"method": "ping"}',
    b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "__proto__": {"admin": true}, "constructor": 1, "extra": [1]}',
    b'{"JSONRPC": "2.0", "ID": 1, "METHOD": "ping"}', b'{"jsonrpc": "2.0", "method": "ping"}',
    b'{"jsonrpc": "2.0", "method": "tools/list"}',
    b'{"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "list_memories", "arguments": {}}}',
]  # fmt: skip

NOTIFIED = [
    '{"requestId": 1}', '{"requestId": "no-such"}', '{"requestId": true}', '{"requestId": null}', '{"requestId": {}}',
    "{}",
    '{"requestId": 1e400}', '{"progressToken": "no-such", "progress": 1}', '{"progressToken": 1, "progress": "x"}',
    "null",
    '{"level": "info", "data": "x"}', "[]", '"x"', '{"reason": "' + "r" * 10_000 + '"}',
]  # fmt: skip

OPENINGS = [
    "null", "{}", "[]", '{"protocolVersion": "1999-01-01"}', '{"protocolVersion": 1, "capabilities": {}}',
    *(
        '{"protocolVersion": %s, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}' % version
        for version in ('"2025-06-18"', '"9999-99-99"', '""', '"../.."', '"2026-07-28"', '"\\u0000"',
        f'"{"v" * 9_999}"', "1", "null")
    ),
    '{"protocolVersion": "2025-06-18", "capabilities": [], "clientInfo": {"name": "x", "version": "1"}}',
    '{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": "x"}',
    '{"protocolVersion": "2025-06-18", "capabilities": {"__proto__": {}, "roots": 1}, "clientInfo": {"name": ""}}',
    '{"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "%s"}}' % ("n" * 9_999),
]  # fmt: skip
"""Parameters of `initialize`, which may come twice or for versions that nobody knows."""

CALLS = [
    "null", "[]", '"x"', "{}", '{"name": null}', '{"name": 1, "arguments": {}}', '{"name": "no_such", "arguments": {}}',
    '{"name": "../list_memories", "arguments": {}}', '{"name": "__init__", "arguments": {}}',
    '{"name": "", "arguments": {}}',
    '{"name": "list_memories"}', '{"name": "list_memories", "arguments": null}',
    '{"name": "list_memories", "arguments": []}',
    '{"name": "list_memories", "arguments": "x"}',
    '{"name": "list_memories", "arguments": {"__proto__": {"limit": 1}}}',
    '{"name": "list_memories", "arguments": {"limit": 1, "limit": "x"}}',
    '{"name": "%s", "arguments": {}}' % ("n" * 99_999),
    '{"name": "list_memories", "arguments": {}, "_meta": 1}',
    '{"name": "list_memories", "arguments": {}, "_meta": {"progressToken": {}}}',
    '{"name": "list_memories", "_meta": {"progressToken": 1.5, "io.modelcontextprotocol/protocolVersion": 1}}',
    '{"name": "add_memories", "arguments": {"text": "%s"}}' % ("x" * 1_500_000),
    '{"name": "add_memories", "arguments": {"text": "x", "metadata": {"m": "%s"}}}' % ("x" * 1_500_000),
    '{"name": "delete_memories", "arguments": {"memory_ids": [%s]}}' % ",".join(['"x"'] * 100_000),
    '{"name": "list_memories", "arguments": {"user_id": "admin", "app": "../", "scopes": ["admin"]}}',
]  # fmt: skip


class Due(Enum):
    """What must be said to a message."""

    ANSWER = "a result or an error under its id"
    ERROR = "an error, as it is no message"
    NOTHING = "nothing, as it asks nothing"
    REFUSAL = "an error where every message has an answer of its own: nobody waits for that of a notification"
    EITHER = "whatever its reader makes of it"


@dataclass(frozen=True)
class Hostile:
    """One message, as it is sent."""

    body: bytes
    due: Due
    id: Any = None


def due(body: bytes) -> Hostile:
    """What the protocol asks for."""
    try:
        message = json.loads(body.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return Hostile(body, Due.ERROR)
    # Some readers take many levels and halves of surrogate pairs, others do not.
    if body.count(b"[") + body.count(b"{") > 90 or b"\\ud83d" in body:
        return Hostile(body, Due.EITHER, message.get("id") if isinstance(message, dict) else None)
    if not isinstance(message, dict):
        return Hostile(body, Due.ERROR)
    if message.get("jsonrpc") != "2.0":
        return Hostile(body, Due.REFUSAL if "method" in message and "id" not in message else Due.ERROR)
    usable = isinstance(message.get("id"), str | int) and not isinstance(message["id"], bool)
    if "result" in message or "error" in message:
        if "method" in message and "id" not in message:
            return Hostile(body, Due.REFUSAL)
        return Hostile(body, Due.NOTHING if _answers(message, usable) else Due.ERROR)
    if "method" not in message:
        return Hostile(body, Due.ERROR)
    well_formed = isinstance(message["method"], str) and isinstance(message.get("params"), dict | None)
    if not well_formed or ("id" in message and not usable):
        return Hostile(body, Due.ERROR if "id" in message else Due.REFUSAL)
    return Hostile(body, Due.ANSWER, message["id"]) if usable else Hostile(body, Due.NOTHING)


def _answers(message: dict[str, Any], usable: bool) -> bool:
    match message:
        case {"method": _} | {"result": _, "error": _}:
            return False
        case {"result": dict()}:
            return usable
        case {"error": {"code": int(code), "message": str()}}:
            return not isinstance(code, bool) and (usable or message.get("id") is None)
    return False


def _refuse(name: str) -> Any:
    raise ValueError(name)


def corpus(seed: int, mutations: int, *, every: int = 1) -> list[Hostile]:
    """The lists above, each in its place, and mutations of them.

    `every`: of the rubbish in arguments of tools, only each so-many-th. What a tool makes of it is the same through
    every door, while the rest is for the readers of the doors.
    """
    texts = [*_messages(), *itertools.islice(_arguments(), seed % every, None, every)]
    bodies = [*BROKEN, *(text.encode("utf-8", "surrogatepass") for text in texts)]
    rng = random.Random(seed)
    short = [body for body in bodies if 20 < len(body) < 2_000]
    bodies += [_mutated(rng, rng.choice(short), rng.choice(short)) for _ in range(mutations)]
    return [due(body) for body in bodies]


def _messages() -> Iterator[str]:
    for id_ in IDS:
        yield '{"jsonrpc": "2.0", "id": %s, "method": "ping"}' % id_
        yield '{"jsonrpc": "2.0", "id": %s, "method": "tools/call", "params": {"name": "list_memories"}}' % id_
    for number, method in enumerate(METHODS):
        yield '{"jsonrpc": "2.0", "id": %d, "method": %s}' % (number, method)
        yield '{"jsonrpc": "2.0", "id": "m%d", "method": %s, "params": {"uri": "file:///etc/passwd", "name": "x"}}' % (
            number,
            method,
        )
        yield '{"jsonrpc": "2.0", "method": %s, "params": {}}' % method
    for params in NOTIFIED:
        for name in ("cancelled", "progress", "initialized", "message"):
            yield '{"jsonrpc": "2.0", "method": "notifications/%s", "params": %s}' % (name, params)
    for number, params in enumerate(OPENINGS):
        yield '{"jsonrpc": "2.0", "id": "o%d", "method": "initialize", "params": %s}' % (number, params)
    for number, params in enumerate((*CALLS, *VALUES)):
        yield '{"jsonrpc": "2.0", "id": "c%d", "method": "tools/call", "params": %s}' % (number, params)
        yield '{"jsonrpc": "2.0", "id": "l%d", "method": "tools/list", "params": %s}' % (number, params)


def _arguments() -> Iterator[str]:
    for tool in TOOLS.values():
        for argument in tool.listing().input_schema.get("properties", {}):
            for value in VALUES:
                given = {"text": '"x"', "query": '"x"', "memory_id": '"x"', "memory_ids": "[]"} | {argument: value}
                arguments = ", ".join(f'"{name}": {text}' for name, text in given.items())
                yield '{"jsonrpc": "2.0", "id": "%s %s", "method": "tools/call", "params": %s}' % (
                    tool.name, argument, '{"name": "%s", "arguments": {%s}}' % (tool.name, arguments),
                )  # fmt: skip


def _mutated(rng: random.Random, body: bytes, other: bytes) -> bytes:
    changed = bytearray(body)
    for _ in range(rng.randint(1, 4)):
        at, to = sorted(rng.randrange(len(changed) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                del changed[at : min(to, at + 8)]
            case 1:
                changed[at:at] = rng.choice(
                    [b"\x00", b"\xff", b'"', b"{", b"}", b"[", b",", b":", b"\\", b"1e999", b"null"]
                )
            case 2:
                changed[at:at] = changed[at:to]
            case 3 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 4:
                start = rng.randrange(len(other))
                changed[at:to] = other[start : start + 40]
            case _:
                changed[at:at] = str(rng.choice([2**31, 2**63, -(2**64), 10**50])).encode()
    return bytes(changed)
