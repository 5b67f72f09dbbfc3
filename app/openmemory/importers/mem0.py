"""Converts data of mem0 to OpenMemory: a point or an object becomes a memory of a user, an app and a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO
from uuid import NAMESPACE_URL, UUID, uuid5

from openmemory.backup.format import BadArchive
from openmemory.importers.cleaning import names
from openmemory.importers.source import BadSource
from openmemory.importers.staging import Staging

APP = "mem0"
"""The app of a memory that names neither an agent nor a client of OpenMemory."""

_OWN = frozenset({"id", "memory", "data", "hash", "created_at", "updated_at", "user_id", "run_id", "categories",
                  "metadata", "score", "text_lemmatized"})  # fmt: skip
"""Fields that are not metadata. `agent_id`, `actor_id` and `role` have no field of their own here and stay metadata."""
_ARCHIVES = "http://openmemory.invalid/mem0"
_CHUNK = 64 * 1024
_MAX_NAMED = 1_000_000
"""Maximum number of users, apps and categories, which are held in memory."""


class Mem0:
    """Fills a staging with the data of mem0. An id that is not a UUID is mapped to a UUID, always to the same one."""

    def __init__(self, staging: Staging, *, user: str) -> None:
        """`user`: the user of memories that name none."""
        self._staging = staging
        self._default = user
        self._known: set[str] = set()

    def take(self, item: Mapping[str, Any]) -> None:
        """Adds one memory. `item` has the field names of mem0's responses; all other fields are metadata."""
        nested = item.get("metadata")
        metadata = dict(nested) if isinstance(nested, dict) else {}
        metadata |= {name: value for name, value in item.items() if name not in _OWN and value is not None}
        handle = _name(item.get("user_id")) or self._default
        user = self._made("users", handle, user_id=handle)
        app = _name(metadata.get("mcp_client")) or _name(metadata.get("agent_id")) or APP
        id_ = _uuid(item.get("id"))
        row = {
            "id": id_, "user_id": user, "app_id": self._made("apps", user, app, owner_id=user),
            "content": item.get("memory", item.get("data")), "metadata": metadata, "state": "active",
            "created_at": item.get("created_at"), "updated_at": item.get("updated_at"),
            "thread_id": _name(item.get("run_id")),
        }  # fmt: skip
        if not self._staging.add("memories", row):
            return
        created = item.get("created_at") or item.get("updated_at")
        history = {"id": _id("history", str(id_)), "memory_id": id_, "new_state": "active", "changed_at": created}
        if created is not None:
            self._staging.add("memory_status_history", history)
        categories = item.get("categories", metadata.get("categories"))
        for name in sorted(names(categories)):
            self._staging.add("memory_categories", {"memory_id": id_, "category_id": self._made("categories", name)})

    def refuse(self, id_: str, reason: str) -> None:
        """Records an entry that is not a memory, and whose user is therefore unknown."""
        self._staging.refuse("memories", {"id": id_}, reason)

    def _made(self, table: str, *of: str, **row: str) -> str:
        """The id of a named row, which is added on first use. The last of `of` is its name."""
        id_ = _id(table, *of)
        if id_ not in self._known:
            if len(self._known) >= _MAX_NAMED:
                raise BadSource(f"names more than {_MAX_NAMED:,} users, apps and categories")
            self._known.add(id_)
            self._staging.add(table, {"id": id_, "name": of[-1], **row})
        return id_


def stage_json(file: BinaryIO, mem0: Mem0) -> int:
    """Stages a JSON export: a list of memories, or a `get_all` response, `{"results": [...]}`. Returns their number.

    Raises:
        BadSource: the file is neither.
    """
    from openmemory.backup.json_stream import entries

    count = 0
    try:
        for entry in entries(_reading(file), "the file"):
            if entry.key in ("results", "memories") and entry.number is not None and entry.number >= 0:
                count += 1
                if isinstance(entry.value, dict):
                    mem0.take(entry.value)
                else:
                    mem0.refuse(f"number {entry.number + 1}", "must be a JSON object")
    except BadArchive as error:
        raise BadSource(f"must be a JSON export of mem0: {error.message}") from error
    return count


def _reading(file: BinaryIO) -> Callable[[int], bytes]:
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

    following = pieces()
    return lambda _: next(following, b"")


def _name(value: Any) -> str | None:
    """A trimmed name, or None if the value is not a nonempty string."""
    return value.strip() or None if isinstance(value, str) else None


def _uuid(value: Any) -> Any:
    """An id as a UUID. Qdrant ids may also be numbers, and other programs may use any string."""
    try:
        return str(UUID(str(value)))
    except ValueError:
        return value if value is None else _id("memory", str(value))


def _id(*of: str) -> str:
    return str(uuid5(NAMESPACE_URL, "/".join((_ARCHIVES, *of))))
