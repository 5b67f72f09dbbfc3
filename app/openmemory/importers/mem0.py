"""Converts data of mem0 to OpenMemory: a point or an object becomes a memory of a user, an app and a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO

from openmemory.backup.format import BadArchive
from openmemory.importers.cleaning import names
from openmemory.importers.filling import Filling, text_or_none
from openmemory.importers.source import BadSource
from openmemory.importers.staging import Staging

APP = "mem0"
"""The app of a memory that names neither an agent nor a client of OpenMemory."""

_OWN = frozenset({"id", "memory", "data", "hash", "created_at", "updated_at", "user_id", "run_id", "categories",
                  "metadata", "score", "text_lemmatized"})  # fmt: skip
"""Fields that are not metadata. `agent_id`, `actor_id` and `role` have no field of their own here and stay metadata."""
_CHUNK = 64 * 1024


class Mem0:
    """Fills a staging with the data of mem0. An id that is not a UUID is mapped to a UUID, always to the same one."""

    def __init__(self, staging: Staging, *, user: str) -> None:
        """`user`: the user of memories that name none."""
        self._staging = staging
        self._filling = Filling(staging, APP, user=user)

    def take(self, item: Mapping[str, Any]) -> None:
        """Adds one memory. `item` has the field names of mem0's responses; all other fields are metadata."""
        nested = item.get("metadata")
        metadata = dict(nested) if isinstance(nested, dict) else {}
        metadata |= {name: value for name, value in item.items() if name not in _OWN and value is not None}
        app = text_or_none(metadata.get("mcp_client")) or metadata.get("agent_id")
        id_ = self._filling.memory_id(item.get("id"))
        row = {
            "id": id_, "content": item.get("memory", item.get("data")), "metadata": metadata, "state": "active",
            "created_at": item.get("created_at"), "updated_at": item.get("updated_at"),
            "thread_id": text_or_none(item.get("run_id")),
        }  # fmt: skip
        categories = item.get("categories", metadata.get("categories"))
        if not self._filling.memory(row, user=item.get("user_id"), app=app, categories=sorted(names(categories))):
            return
        created_at = item.get("created_at") or item.get("updated_at")
        history = {
            "id": self._filling.id("history", str(id_)), "memory_id": id_, "new_state": "active",
            "changed_at": created_at,
        }  # fmt: skip
        if created_at is not None:
            self._staging.add("memory_status_history", history)

    def refuse(self, id_: str, reason: str) -> None:
        """Records an entry that is not a memory, and whose user is therefore unknown."""
        self._staging.refuse("memories", {"id": id_}, reason)


def stage_json(file: BinaryIO, mem0: Mem0) -> int:
    """Stages a JSON export: a list of memories, or a `get_all` response, `{"results": [...]}`. Returns their number.

    Raises:
        BadSource: the file is neither.
    """
    from openmemory.backup.json_stream import entries

    count = 0
    try:
        for entry in entries(_reader(file), "the file"):
            if entry.key in ("results", "memories") and entry.number is not None and entry.number >= 0:
                count += 1
                if isinstance(entry.value, dict):
                    mem0.take(entry.value)
                else:
                    mem0.refuse(f"number {entry.number + 1}", "must be a JSON object")
    except BadArchive as error:
        raise BadSource(f"must be a JSON export of mem0: {error.message}") from error
    return count


def _reader(file: BinaryIO) -> Callable[[int], bytes]:
    """Reads the file. A list is wrapped in an object, as its `results`."""
    start = file.read(_CHUNK).removeprefix(b"\xef\xbb\xbf").lstrip()

    def pieces() -> Iterator[bytes]:
        listed = start.startswith(b"[")
        if listed:
            yield b'{"results":'
        yield start
        while data := file.read(_CHUNK):
            yield data
        if listed:
            yield b"}"

    chunks = pieces()
    return lambda _: next(chunks, b"")
