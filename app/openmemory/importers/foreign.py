"""Recognises files of other programs that cannot be imported. The answer names the kind of file and what to do."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple, cast

from openmemory.backup.container import Frugal
from openmemory.backup.format import BadArchive

_START = 64 * 1024
_MOST_NAMES = 10_000
_BOM = b"\xef\xbb\xbf"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_BROKEN = (OSError, ValueError, RuntimeError, NotImplementedError, EOFError, OverflowError)
_LOG = "write each conversation as lines of {role, content, id, created_at}, for `openmemory threads log THREAD -`"
_LINES = 'write a line such as {"text": "..."} for each memory, and import it with `openmemory import FILE`'
_DOCUMENTS = "`openmemory documents add FILE` stores it as a document that is searched"


class ForeignFile(NamedTuple):
    """A kind of file that is not imported: its name, and what can be done with it."""

    name: str
    remedy: str


_CHATGPT = ForeignFile("an export of ChatGPT, with conversations and no memories", _LOG)
_CLAUDE = ForeignFile("an export of Claude, with conversations", _LOG)
_SLACK = ForeignFile("an export of Slack", _LOG)
_CHAT = ForeignFile("a list of messages of a conversation", _LOG)
_MEMORIES = ForeignFile("memories of Claude", _LINES)
_GEMINI = ForeignFile("an activity log of Google Takeout", _LOG)
_GRAPH = ForeignFile("a knowledge graph of server-memory", _LINES)
_LETTA = ForeignFile("an agent file of Letta", _LINES)
_ARRAY = ForeignFile("a JSON array of memories", "import each as a line of its own, as `jq -c '.[]' FILE` writes them")
_NOTES = ForeignFile("a folder of Markdown notes", "unpack it; `openmemory ingest FOLDER` makes its notes searchable")
_DOCUMENT = ForeignFile("a document", _DOCUMENTS)
_TEXT = ForeignFile("Markdown or plain text", _DOCUMENTS)
_OTHER = ForeignFile("a ZIP archive of another program", "`openmemory export` makes archives that can be imported")

_BY_KEYS: tuple[tuple[tuple[bytes, ...], ForeignFile], ...] = (
    ((b"mapping", b"create_time"), _CHATGPT),
    ((b"mapping", b"current_node"), _CHATGPT),
    ((b"chat_messages",), _CLAUDE),
    ((b"conversations_memory",), _MEMORIES),
    ((b"header", b"titleUrl"), _GEMINI),
    ((b"entityType",), _GRAPH),
    ((b"agents", b"blocks"), _LETTA),
    ((b"role", b"content"), _CHAT),
)
"""The keys by which JSON is recognised. The first kind whose keys are all there counts."""


def foreign_json(start: bytes) -> ForeignFile | None:
    """Returns the kind of a JSON file of another program that starts like this; None if it is none that is known."""
    text = start.removeprefix(_BOM).lstrip()
    if not text.startswith((b"{", b"[")):
        return None
    keys = {key for key, rest in _quoted(text) if rest.lstrip().startswith(b":")}
    file_kind = next((kind for required_keys, kind in _BY_KEYS if keys.issuperset(required_keys)), None)
    if file_kind is None and text.startswith(b"[") and b"text" in keys:
        file_kind = _ARRAY
    # Memories of mem0 may have any other key, too.
    return None if file_kind in (_CHAT, _ARRAY) and keys & {b"memory", b"data"} else file_kind


def foreign_text(start: bytes) -> ForeignFile | None:
    """Returns the kind of a file that is neither JSON, a database nor a ZIP; None if it is no text."""
    if start.startswith(b"%PDF-"):
        return _DOCUMENT
    text = start.removeprefix(_BOM).strip()
    try:
        text.decode()
    except UnicodeDecodeError as error:
        if error.start < len(text) - 4:  # the start may end within a character
            return None
    return _TEXT if text and b"\0" not in text and not text.startswith((b"{", b"[")) else None


def foreign_zip(file: BinaryIO, ours: str) -> ForeignFile | None:
    """Returns the kind of a ZIP without the member `ours`, or of one of another program that has a member of this name;
    None if it is neither, or is broken."""
    try:
        with zipfile.ZipFile(cast(BinaryIO, Frugal(file))) as archive:
            members = archive.infolist()[:_MOST_NAMES]
            names = [member.filename for member in members]
            for member in members:
                name = member.filename.rpartition("/")[2]
                if name.startswith("conversations") and name.endswith(".json") and member.compress_type in _METHODS:
                    with archive.open(member) as member_file:
                        if file_kind := foreign_json(member_file.read(_START)):
                            return file_kind
    except (BadArchive, zlib.error, zipfile.BadZipFile, zipfile.LargeZipFile, *_BROKEN):
        return None  # opening it as an archive reports the error
    finally:
        file.seek(0)
    return None if ours in names else _of_names(names)


def _of_names(names: Sequence[str]) -> ForeignFile:
    plain = {name.rpartition("/")[2] for name in names}
    if {"channels.json", "users.json"} <= plain:
        return _SLACK
    if any(name.startswith("MyActivity.") for name in plain):
        return _GEMINI
    if "[Content_Types].xml" in plain or "mimetype" in plain:
        return _DOCUMENT
    files = [name for name in names if not name.endswith("/")]
    return _NOTES if files and sum(name.endswith((".md", ".csv")) for name in files) * 2 > len(files) else _OTHER


def _quoted(text: bytes) -> list[tuple[bytes, bytes]]:
    """The texts between quotes, each with a little of what follows."""
    parts = text.split(b'"')
    return [(part, parts[place + 1][:8]) for place, part in enumerate(parts[:-1])]
