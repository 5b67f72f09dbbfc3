"""Sends what was said in a session of Claude Code, once. Imports little: see `openmemory.doors.cli.hook`."""

from __future__ import annotations

import binascii
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from openmemory.doors.cli.left_out import INTERRUPTED, SUFFIX, LeftOut

MOST = 50
"""Messages of one batch for the language model; the newest count."""
LONGEST = 2_000
"""Characters of a message that the language model gets, from its start."""
LOGGED_TOGETHER = 200
"""Messages of one batch for the log."""
LONGEST_LOGGED = 16_000
"""Characters of a message that is logged; a longer one becomes several."""
_TOGETHER = 500_000
"""Characters of one batch for the log: with all of them escaped, half of what a service takes at once."""
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
_NOT_SAID = ("isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly")
_SIDES = ("user", "assistant")

Message = dict[str, Any]
Refusal = Mapping[str, Any]
"""A refused message of a batch, as the service names it: `index`, `field` and `detail`."""

Send = Callable[[list[str], str], str | None]
"""Sends a batch with a key of its own. Returns the reason why the service refused it, if it did."""
Log = Callable[[str, list[Message]], list[str]]
"""Logs a batch of a session. Returns the reason for each message that was not stored as it is."""


def send_new(transcript: str, folder: str, send: Send) -> None:
    """Passes the user's messages that were not sent yet to `send`, with a key for this batch. `folder` holds how far
    each transcript was sent, and what was left out.

    The end of a batch is written down before it is sent. If `send` raises or the process ends, the next run sends the
    same batch with the same key, so the service recognizes that it has it already.

    Raises:
        OSError: a file cannot be read or written, or another hook of the session sends now.
    """
    transcript = os.path.realpath(transcript)
    name = _name(transcript)
    left_out = LeftOut(os.path.join(folder, f"{name}{SUFFIX}"), transcript)

    def pass_on(start: int, end: int) -> Iterator[int]:
        messages = [text[:LONGEST] for text in _user_messages(transcript, start, end, left_out)][-MOST:]
        if sum(map(len, messages)) >= LEAST and (reason := send(messages, f"{name}-{start}-{end}")):
            left_out.add(reason, len(messages))
        left_out.save(start)
        yield end

    _new_parts(transcript, os.path.join(folder, name), left_out, pass_on)


def log_new(transcript: str, folder: str, log: Log) -> None:
    """Passes everything that was said and not logged yet to `log`, with a name for the session: the messages of both
    sides, each with its id and time. `folder` holds how far each transcript was logged, and what was left out.

    A message may be passed on twice, with the same id.

    Raises:
        OSError: a file cannot be read or written, or another hook of the session logs now.
    """
    transcript = os.path.realpath(transcript)
    name = _name(transcript)
    left_out = LeftOut(os.path.join(folder, f"{name}.log{SUFFIX}"), transcript)

    def log_batches(batch: list[Message]) -> None:
        for some in _batches(batch):
            for reason in log(name, some):
                left_out.add(reason)

    def pass_on(start: int, end: int) -> Iterator[int]:
        batch: list[Message] = []
        for reached, line in _lines(transcript, start, end):
            batch += _messages(line, reached, left_out)
            if len(batch) >= LOGGED_TOGETHER or _characters(batch) >= _TOGETHER:
                log_batches(batch)
                left_out.save(start)
                yield reached
                start, batch = reached, []
        log_batches(batch)
        left_out.save(start)
        yield end

    _new_parts(transcript, os.path.join(folder, f"{name}.log"), left_out, pass_on)


def acceptable(messages: Sequence[Message], refusals: Sequence[Refusal]) -> tuple[list[Message], list[str]]:
    """Returns those refused messages that can be stored in another form, in this form, and the reasons of all that are
    not stored as they are: with the time of their receipt if their own is unreadable, and with another id if theirs
    is that of another message or no id at all."""
    other, reasons = list[Message](), list[str]()
    for each in refusals:
        message, detail = messages[each["index"]], str(each.get("detail"))
        if each.get("field") == "created_at" and "created_at" in message:
            other.append({name: value for name, value in message.items() if name != "created_at"})
            reasons.append(f"{detail} (stored with the time of its receipt)")
        elif each.get("field") == "id":
            id_, content = (binascii.crc32(str(message[name]).encode("utf-8", "replace")) for name in ("id", "content"))
            other.append(message | {"id": f"{id_:08x}-{content:08x}"})
        else:
            reasons.append(detail)
    return other, reasons


def _batches(messages: list[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    for message in messages:
        if batch and (len(batch) == LOGGED_TOGETHER or _characters([*batch, message]) > _TOGETHER):
            yield batch
            batch = []
        batch.append(message)
    if batch:
        yield batch


def _characters(batch: list[Message]) -> int:
    return sum(len(message["content"]) for message in batch)


def _new_parts(transcript: str, place: str, left_out: LeftOut, pass_on: Callable[[int, int], Iterator[int]]) -> None:
    """Passes on the start and end of the part of a transcript that is new, and writes to `place` how far that came."""
    end = _whole_lines(transcript)
    position = os.open(_position_file(place), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(position, fcntl.LOCK_EX | fcntl.LOCK_NB)
        start, until = map(int, os.pread(position, 100, 0).split() or (0, 0))
        if start > end:  # the file was replaced
            start = end
            _note(position, start, start)
        while start < end:
            until = min(until, end) if until > start else end
            _note(position, start, until)
            left_out.waits(INTERRUPTED)
            try:
                for reached in pass_on(start, until):
                    start = reached
                    _note(position, start, until)
            except Exception as error:
                left_out.waits(str(error) or type(error).__name__)
                raise
            left_out.waits(None)
    finally:
        os.close(position)


def _name(transcript: str) -> str:
    """A name for the file of a session, whose own name is the id of the session."""
    session = re.sub(r"[^A-Za-z0-9-]", "_", os.path.basename(transcript).removesuffix(".jsonl"))[-64:]
    return f"{session}-{binascii.crc32(transcript.encode()):08x}"


def _note(position: int, start: int, until: int) -> None:
    os.pwrite(position, b"%020d %020d\n" % (start, until), 0)


def _position_file(place: str) -> str:
    """The file with the position in a transcript. Old ones beside it are removed."""
    folder, name = os.path.split(place)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(name) and entry.stat().st_mtime < time.time() - _KEPT:
                os.unlink(entry)
    return place


def _whole_lines(transcript: str) -> int:
    """The position after the last whole line, or after a last entry that is whole without the end of its line."""
    with open(transcript, "rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = file.seek(max(0, end - _BLOCK))
            if length := file.read(end - start).rfind(b"\n") + 1:
                end = start + length
                break
            end = start
        file.seek(end)
        return size if _entry(file.read(size - end)) is not None else end


def _user_messages(transcript: str, start: int, end: int, left_out: LeftOut) -> Iterator[str]:
    """The user's own messages between two positions, or in the last `_READ` bytes before the end. Half a line there is
    no message."""
    near = max(start, end - _READ)
    for reached, line in _lines(transcript, near, end):
        whole = near == start or reached - len(line) > near
        entry = _parse_line(line, left_out) if whole and b'"user"' in line else {}
        if entry.get("type") == "user" and (text := _text(entry, left_out)):
            yield text


def _messages(line: bytes, reached: int, left_out: LeftOut) -> list[Message]:
    """The message in a line, of either side, as the service takes it. A long one is several."""
    entry = _parse_line(line, left_out)
    text = _text(entry, left_out)
    if text and entry.get("type") not in _SIDES:
        left_out.add("its role is not known")
        return []
    value, at = entry.get("uuid"), entry.get("timestamp")
    id_ = str(value) if _is_text_or_number(value) and value != "" else f"line-{reached}"
    time_of_it = {"created_at": at} if _is_text_or_number(at) else {}
    return [
        {
            "role": entry["type"],
            "content": text[place : place + LONGEST_LOGGED],
            "id": f"{id_}-{place // LONGEST_LOGGED + 1}" if place else id_,
            **time_of_it,
        }
        for place in range(0, len(text), LONGEST_LOGGED)
        if text[place : place + LONGEST_LOGGED].strip()
    ]


def _lines(transcript: str, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines between two positions, each with the position after it."""
    with open(transcript, "rb") as file:
        file.seek(start)
        while start < end and (line := file.readline()):
            start += len(line)
            yield start, line


def _parse_line(line: bytes, left_out: LeftOut) -> dict[str, Any]:
    """The object of a line; empty if it is blank or cannot be read."""
    entry = _entry(line)
    if entry is None and line.strip():
        left_out.add("its line cannot be read as a JSON object")
    return entry or {}


def _entry(line: bytes) -> dict[str, Any] | None:
    """The object of a line; None if it is broken. Bytes that are not UTF-8 are replaced."""
    try:
        entry = json.loads(line.decode("utf-8", "replace").removeprefix("\ufeff"), strict=False)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _text(entry: dict[str, Any], left_out: LeftOut) -> str:
    """The text of the message in an entry; empty if it holds none."""
    role, message = entry.get("type"), entry.get("message")
    if any(entry.get(mark) for mark in _NOT_SAID):
        return ""
    if role not in _SIDES and not (isinstance(message, dict) and isinstance(message.get("role"), str)):
        return ""
    content = message.get("content") if isinstance(message, dict) else entry.get("content", message)
    if entry.get("toolUseResult") and not isinstance(content, list):
        return ""
    blocks = content if isinstance(content, list) else [content]
    left_out.add("it is no text, but an image or a document", sum(_kind(block) in _NO_TEXT for block in blocks))
    texts = (block.get("text") if isinstance(block, dict) else block for block in blocks if _kind(block) == "text")
    text = "\n".join(str(each) for each in texts if _is_text_or_number(each))
    text = _REMINDER.sub(lambda match: "" if match[1] else match[0], text).replace("\0", "\ufffd").strip()
    return "" if role == "user" and _WRITTEN_BY_PROGRAM.match(text) else text


_NO_TEXT = ("image", "document")


def _kind(block: Any) -> Any:
    return block.get("type", "text") if isinstance(block, dict) else "text"


def _is_text_or_number(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) or (number and abs(value) < _MAX_NUMBER)


_MAX_NUMBER = 1e20
"""A bound above any time. NaN and infinity are not below it, and no request can hold them."""
