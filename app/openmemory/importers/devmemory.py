"""Reads the database of DevMemory: its projects, values, sessions and indexed files."""

from __future__ import annotations

from typing import Any

from openmemory.importers.cleaning import text, words
from openmemory.importers.databases import ForeignDatabase, Show, must_have, read, skipped_table_notes
from openmemory.importers.filling import Filling, filled, object_of, parsed, text_or_none
from openmemory.serialization import exact_json
from openmemory.sources.cutting import kind_of, language_of
from openmemory.sources.models import PassageKind, SourceKind

_TABLES = {
    "projects": ("id", "name", "root_path", "metadata", "created_at", "updated_at"),
    "memories": ("project_id", "topic", "key", "value", "created_by", "created_at", "updated_at"),
    "sessions": ("project_id", "session_num", "title", "summary", "content", "metadata", "created_at"),
    "file_index": ("project_id", "file_path", "file_type", "symbols", "summary", "last_indexed"),
}
_NEEDED = {"projects": ("id",), "memories": ("project_id", "topic", "key", "value")}
_SKIPPED_TABLES = {"usage_stats": "the counters of calls, which start anew here"}


def stage(database: ForeignDatabase, filling: Filling, show: Show) -> None:
    """Stages everything. A project becomes the namespace of its id, as the tools of DevMemory name it here.

    Raises:
        BadSource: it is not a database of DevMemory.
    """
    must_have(database, "DevMemory", _NEEDED)
    reader = _DevMemory(filling)
    readers = {
        "projects": (reader.project, "projects"), "memories": (reader.value, "memories"),
        "sessions": (reader.session, "sources"), "file_index": (reader.file, "sources"),
    }  # fmt: skip
    for table, row in read(database, _TABLES, show):
        take, kind = readers[table]
        with filling.reporting(kind, "/".join(str(row.get(name)) for name in _TABLES[table][:3] if name in row)):
            take(row)
    filling.staging.general_notes += skipped_table_notes(database, _SKIPPED_TABLES)


class _DevMemory:
    """Adds the rows of each table."""

    def __init__(self, filling: Filling) -> None:
        self._filling = filling
        self._roots: dict[str, str] = {}

    def project(self, row: dict[str, Any]) -> None:
        """A project."""
        namespace, root = text("id", row["id"]), text_or_none(row.get("root_path"))
        if root is not None:
            self._roots[namespace] = root.rstrip("/") + "/"
        self._filling.project(namespace, row | {"root": root, "metadata": object_of(row.get("metadata"))})

    def value(self, row: dict[str, Any]) -> None:
        """A value under a topic and a key."""
        namespace, topic, key, value = (text(name, row[name]) for name in ("project_id", "topic", "key", "value"))
        times = {name: row.get(name) for name in ("created_at", "updated_at")}
        self._filling.value(
            topic, key, value, {"namespace": namespace, **times}, of=namespace, app=row.get("created_by")
        )

    def session(self, row: dict[str, Any]) -> None:
        """A session. Its first passage is its summary, or its title if it has none."""
        namespace, locator = text("project_id", row["project_id"]), f"session-{row.get('session_num')}"
        title, summary, content = (words(name, row.get(name) or "") for name in ("title", "summary", "content"))
        created_at = row.get("created_at")
        source = {
            "id": self._filling.id("session", namespace, locator), "kind": SourceKind.CONVERSATION,
            "namespace": namespace, "locator": locator, "title": title, "summary": summary,
            "metadata": object_of(row.get("metadata")), "created_at": created_at, "closed_at": created_at,
        }  # fmt: skip
        about = summary.strip() or title or locator
        self._filling.text(source, content, PassageKind.SESSION, first=about, above=title)

    def file(self, row: dict[str, Any]) -> None:
        """A file. DevMemory stores its summary and the names that it defines, but not its text."""
        namespace, path = text("project_id", row["project_id"]), text("file_path", row["file_path"])
        path = path.removeprefix(self._roots.get(namespace, "\0"))
        symbols, sort = parsed(words("symbols", row.get("symbols") or "[]")), row.get("file_type")
        names = symbols if isinstance(symbols, list) else [symbols] if symbols else []
        symbol_text = ", ".join(one if isinstance(one, str) else exact_json.dumps(one).decode() for one in names)
        parts = [words("summary", row.get("summary") or ""), f"Type: {sort}" if sort else "", symbol_text]
        language = language_of(path)
        source = {
            "id": self._filling.id("file", namespace, path), "kind": SourceKind.FILE, "namespace": namespace,
            "locator": path, "language": language, "created_at": row.get("last_indexed"),
            "metadata": filled(file_type=sort),
        }  # fmt: skip
        self._filling.text(source, "\n\n".join(part for part in parts if part), kind_of(language))
