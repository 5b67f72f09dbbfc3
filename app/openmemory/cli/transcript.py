"""Sends what was said in a session of Claude Code, once. Imports little: see `openmemory.cli.hook`."""

from __future__ import annotations

import binascii
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

MOST = 50
"""Messages of one batch for the language model; the newest count."""
LONGEST = 2_000
"""Characters of a message that the language model gets, from its start."""
LOGGED_TOGETHER = 200
"""Messages of one batch for the log."""
LONGEST_LOGGED = 16_000
"""Characters of a message that are logged, from its start."""
LEAST = 40
"""Characters of a batch below which nothing is worth a question to the language model."""
_READ = 4_000_000
"""Bytes of a transcript that are read at once; the newest count."""
_BLOCK = 65_536
_KEPT = 60 * 86_400
"""Seconds after which the position in a transcript is forgotten. Claude Code deletes transcripts after 30 days."""

# What the program itself wrote in the user's name.
_REMINDER = re.compile(r"<system-reminder>(?:[^<]++|<(?!/system-reminder>))*+(</system-reminder>)?")
_WRITTEN_BY_PROGRAM = re.compile(r"<[a-z][\w-]*>|\[Request interrupted")
_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly", "toolUseResult")

Send = Callable[[list[str], str], None]
Log = Callable[[str, list[dict[str, str]]], None]


def send_new(transcript: str, folder: str, send: Send) -> None:
    """Passes the user's messages that were not sent yet to `send`, with a key for this batch. `folder` holds how far
    each transcript was sent.

    The end of a batch is written down before it is sent. If `send` raises or the process ends, the next run sends the
    same batch with the same key, so the service can tell that it has it already.

    Raises:
        OSError: a file cannot be read or written, or another hook of the session sends now.
    """
    transcript = os.path.realpath(transcript)
    name = _name(transcript)

    def pass_on(start: int, end: int) -> None:
        messages = [text[:LONGEST] for text in _said(transcript, start, end)][-MOST:]
        if sum(map(len, messages)) >= LEAST:
            send(messages, f"{name}-{start}-{end}")

    _new_parts(transcript, os.path.join(folder, name), pass_on)


def log_new(transcript: str, folder: str, log: Log) -> None:
    """Passes everything that was said and not logged yet to `log`, with a name for the session: the messages of both
    sides, each with its id and time. `folder` holds how far each transcript was logged.

    A message may be passed on twice, with the same id.

    Raises:
        OSError: a file cannot be read or written, or another hook of the session logs now.
    """
    transcript = os.path.realpath(transcript)
    name = _name(transcript)

    def pass_on(start: int, end: int) -> None:
        messages = list(_messages(transcript, start, end))
        for at in range(0, len(messages), LOGGED_TOGETHER):
            log(name, messages[at : at + LOGGED_TOGETHER])

    _new_parts(transcript, os.path.join(folder, f"{name}.log"), pass_on)


def _new_parts(transcript: str, place: str, pass_on: Callable[[int, int], None]) -> None:
    """Passes on the start and end of the part of a transcript that is new, and writes the end to `place`."""
    end = _whole_lines(transcript)
    position = os.open(_cleared(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(position, fcntl.LOCK_EX | fcntl.LOCK_NB)
        sent, until = map(int, os.pread(position, 100, 0).split() or (0, 0))
        if sent > end:  # the file was replaced
            sent = end
            _note(position, sent, sent)
        while sent < end:
            until = min(until, end) if until > sent else end
            _note(position, sent, until)
            pass_on(sent, until)
            sent = until
            _note(position, sent, sent)
    finally:
        os.close(position)


def _name(transcript: str) -> str:
    """A name for the file of a session, whose own name is the id of the session."""
    session = re.sub(r"[^A-Za-z0-9-]", "_", os.path.basename(transcript).removesuffix(".jsonl"))[-64:]
    return f"{session}-{binascii.crc32(transcript.encode()):08x}"


def _note(position: int, sent: int, until: int) -> None:
    os.pwrite(position, b"%020d %020d\n" % (sent, until), 0)


def _cleared(place: str) -> str:
    """The file with the position in a transcript. Old ones beside it are removed."""
    folder, name = os.path.split(place)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != name and entry.stat().st_mtime < time.time() - _KEPT:
                os.unlink(entry)
    return place


def _whole_lines(transcript: str) -> int:
    """The position after the last whole line."""
    with open(transcript, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = file.seek(max(0, end - _BLOCK))
            if found := file.read(end - start).rfind(b"\n") + 1:
                return start + found
            end = start
    return 0


def _said(transcript: str, start: int, end: int) -> Iterator[str]:
    """The user's own messages between two positions, or in the last `_READ` bytes before the end. Half a line there is
    no message."""
    for line in _lines(transcript, max(start, end - _READ), end):
        if b'"user"' in line and (text := _text(_entry(line), "user")):
            yield text


def _messages(transcript: str, start: int, end: int) -> Iterator[dict[str, str]]:
    """The messages of both sides between two positions, as the service takes them."""
    for line in _lines(transcript, start, end):
        if b'"user"' not in line and b'"assistant"' not in line:
            continue
        entry = _entry(line)
        role = str(entry.get("type"))
        if role in ("user", "assistant") and (text := _text(entry, role)):
            own = {"id": entry.get("uuid"), "created_at": entry.get("timestamp")}
            told = {name: value for name, value in own.items() if isinstance(value, str)}
            yield {"role": role, "content": text[:LONGEST_LOGGED], **told}


def _lines(transcript: str, start: int, end: int) -> Iterator[bytes]:
    """The lines between two positions, without the results of tools, which are most of a transcript."""
    with open(transcript, "rb") as file:
        file.seek(start)
        while start < end and (line := file.readline()):
            start += len(line)
            # In a text, these quotes would be escaped.
            if b'"tool_result"' not in line:
                yield line


def _entry(line: bytes) -> dict[str, Any]:
    """The object of a line; empty if it is broken."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _text(entry: dict[str, Any], role: str) -> str:
    """The message in an entry; empty if it holds none of this role."""
    message = entry.get("message") if entry.get("type") == role else None
    if not isinstance(message, dict) or any(entry.get(mark) for mark in _NOT_SAID):
        return ""
    content = message.get("content")
    if isinstance(content, list):
        blocks = (block for block in content if isinstance(block, dict) and block.get("type") == "text")
        content = "\n".join(str(block.get("text")) for block in blocks)
    text = (
        _REMINDER.sub(lambda found: "" if found[1] else found[0], content).strip() if isinstance(content, str) else ""
    )
    return "" if role == "user" and _WRITTEN_BY_PROGRAM.match(text) else text
