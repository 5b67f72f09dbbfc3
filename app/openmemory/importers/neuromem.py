"""Reads the database of neuromem: its memories, conversations, key-value pairs and documents."""

from __future__ import annotations

from typing import Any

from openmemory.importers.cleaning import text, words
from openmemory.importers.databases import ForeignDatabase, Show, must_have, read, skipped_table_notes
from openmemory.importers.filling import Filling, filled, later, object_of, parsed, text_or_none
from openmemory.serialization import exact_json
from openmemory.sources.cutting import language_of
from openmemory.sources.models import PassageKind, SourceKind

_TRAIT = (
    "trait_subtype", "trait_stage", "trait_confidence", "trait_context", "trait_parent_id", "trait_last_reinforced",
    "trait_first_observed", "trait_window_start", "trait_window_end", "trait_derived_from",
)  # fmt: skip
_COUNTS = ("trait_reinforcement_count", "trait_contradiction_count")
_MEMORY = (
    "id", "user_id", "content", "memory_type", "metadata", "valid_from", "valid_until", "valid_at", "invalid_at",
    "expired_at", "version", "superseded_by", "importance", "extracted_timestamp", "source_episode_ids", "created_at",
    "updated_at", *_TRAIT, *_COUNTS,
)  # fmt: skip
_TABLES = {
    "conversation_sessions": ("id", "user_id", "session_id", "title", "summary", "metadata", "created_at"),
    "conversations": ("id", "user_id", "session_id", "role", "content", "metadata", "created_at"),
    "memory_sources": ("memory_id", "session_id"),
    "documents": ("id", "user_id", "filename", "mime_type", "file_size", "extracted_text", "embedding_id", "category",
                  "tags", "metadata", "source_type", "created_at"),
    "memories": _MEMORY,
    "embeddings": _MEMORY,
    "key_values": ("namespace", "scope_id", "key", "value", "created_at", "updated_at"),
}  # fmt: skip
"""The columns of each table. `embeddings` was the name of `memories` in early versions."""
_ORDER = {"conversations": ("user_id", "session_id", "created_at")}
_SKIPPED_TABLES = {
    "graph_nodes": "because there is no graph here; the memories that it was made of are imported",
    "graph_edges": "because there is no graph here; the memories that it was made of are imported",
    "memory_history": "the earlier texts of memories",
    "trait_evidence": "the weights behind traits; traits are imported as memories of the kind trait",
    "reflection_cycles": "the log of reflections",
    "emotion_profiles": "the profiles of moods",
}


def stage(database: ForeignDatabase, filling: Filling, show: Show) -> None:
    """Stages everything of all users.

    Raises:
        BadSource: it is not a database of neuromem.
    """
    table = "memories" if "memories" in database.columns else "embeddings"
    must_have(database, "neuromem", {table: ("user_id", "content", "memory_type")})
    reader = _Neuromem(filling)
    readers = {
        "conversation_sessions": (reader.session, "sources"), "conversations": (reader.message, "passages"),
        "memory_sources": (reader.memory_source, "memories"), "documents": (reader.document, "sources"),
        "memories": (reader.memory, "memories"), "embeddings": (reader.memory, "memories"),
        "key_values": (reader.value, "memories"),
    }  # fmt: skip
    for name, row in read(database, _TABLES, show, order=_ORDER):
        take, kind = readers[name]
        with filling.reporting(kind, row.get("id") or row.get("key")):
            take(row)
    filling.staging.general_notes += skipped_table_notes(database, _SKIPPED_TABLES)
    if reader.repeated:
        note = f"Not imported: {reader.repeated:,} memories of the kind document, whose documents are imported whole."
        filling.staging.general_notes.append(note)


class _Neuromem:
    """Adds the rows of each table."""

    def __init__(self, filling: Filling) -> None:
        self.repeated = 0
        """Memories that repeat the beginning of a document."""
        self._filling = filling
        self._sessions: dict[str, str] = {}
        """The names of the sessions, by id."""
        self._sources: set[str] = set()
        self._threads: dict[str, str] = {}
        """The names of the sessions that memories are from, by id."""
        self._documents: set[str] = set()
        """The memories that repeat a document, by id."""
        self._last: tuple[str, int, str | None] = ("", 0, None)
        """The conversation of the last message, its number, and the time of the message."""

    def session(self, row: dict[str, Any]) -> None:
        """A conversation."""
        self._sessions[str(row["id"])] = text("session_id", row["session_id"])
        self._conversation(row)

    def _conversation(self, row: dict[str, Any]) -> str:
        name = text("session_id", row["session_id"])
        id_ = self._filling.id("conversation", str(row["user_id"]), name)
        if id_ not in self._sources:
            self._sources.add(id_)
            source = {
                "id": id_, "kind": SourceKind.CONVERSATION, "locator": name, "title": text_or_none(row.get("title")),
                "summary": text_or_none(row.get("summary")), "created_at": row.get("created_at"),
                "metadata": object_of(row.get("metadata")) if "title" in row else {},
            }  # fmt: skip
            self._filling.source(source, user=row["user_id"])
        return id_

    def message(self, row: dict[str, Any]) -> None:
        """A message. Those that were stored at once have the same time, and no two of a conversation may have that."""
        source = self._conversation(row)
        before, number, last = self._last if self._last[0] == source else (source, 0, None)
        at = later(row.get("created_at")) or row.get("created_at")
        if last is not None and isinstance(at, str) and at <= last:
            at = later(last, microseconds=1)
        self._last = (before, number + 1, at)
        passage = {
            "id": self._filling.memory_id(row["id"]), "kind": PassageKind.TURN, "external_id": str(row["id"]),
            "role": text_or_none(row.get("role")) or "user", "content": row["content"], "created_at": at,
            "metadata": object_of(row.get("metadata")),
        }  # fmt: skip
        self._filling.passage(source, number + 1, passage, user=row["user_id"])

    def memory_source(self, row: dict[str, Any]) -> None:
        """The conversation that a memory is from."""
        if (name := self._sessions.get(str(row["session_id"]))) is not None:
            self._threads[str(row["memory_id"])] = name

    def document(self, row: dict[str, Any]) -> None:
        """A document, of which neuromem's database has the text."""
        user, name = row["user_id"], text("filename", row["filename"])
        content = words("extracted_text", row.get("extracted_text") or "")
        if content.strip():
            self._documents.add(str(row.get("embedding_id")))
        place = f"{user}\0{name}"
        if place in self._sources:
            name = f"{str(row['id'])[:8]}-{name}"
        self._sources.add(place)
        about = filled(category=row.get("category"), tags=parsed(row.get("tags")), source_type=row.get("source_type"))
        source = {
            "id": self._filling.memory_id(row["id"]), "kind": SourceKind.DOCUMENT, "locator": name,
            "language": language_of(name), "media_type": row.get("mime_type"), "bytes": row.get("file_size") or None,
            "metadata": object_of(row.get("metadata")) | about, "created_at": row.get("created_at"),
        }  # fmt: skip
        self._filling.text(source, content, PassageKind.DOCUMENT, user=user)

    def memory(self, row: dict[str, Any]) -> None:
        """A memory. What another one replaced, or what became invalid, is archived."""
        if row.get("memory_type") == "document" and str(row["id"]) in self._documents:
            self.repeated += 1
            return
        successor, expired_at = row.get("superseded_by"), row.get("expired_at")
        until = row.get("valid_until") or row.get("invalid_at")
        weight = row.get("importance")
        if isinstance(weight, int | float) and weight > 1:
            weight = min(weight / 10, 1)  # some versions stored it from 1 to 10
        trait = {name: row.get(name) for name in _TRAIT} | {name: row.get(name) or None for name in _COUNTS}
        version = row.get("version")
        about = filled(
            **trait, source_episode_ids=row.get("source_episode_ids"), said_at=row.get("extracted_timestamp"),
            version=version if version != 1 else None,
        )  # fmt: skip
        memory = {
            "id": self._filling.memory_id(row["id"]), "content": row["content"],
            "kind": text_or_none(row.get("memory_type")), "metadata": object_of(row.get("metadata")) | about,
            "importance": weight, "state": "archived" if successor or expired_at else "active", "valid_until": until,
            "archived_at": (until or expired_at or row.get("updated_at")) if successor or expired_at else None,
            "valid_from": row.get("valid_from") or row.get("valid_at"), "thread_id": self._threads.get(str(row["id"])),
            "superseded_by": self._filling.memory_id(successor), "created_at": row.get("created_at"),
            "updated_at": row.get("updated_at"),
        }  # fmt: skip
        self._filling.memory(memory, user=row["user_id"])

    def value(self, row: dict[str, Any]) -> None:
        """A key-value pair, which becomes a value under its namespace as the topic and its key."""
        user, topic, key = (text(name, row[name]) for name in ("scope_id", "namespace", "key"))
        value = parsed(words("value", row["value"]))
        content = value if isinstance(value, str) else exact_json.dumps(value).decode()
        times = {name: row.get(name) for name in ("created_at", "updated_at")}
        self._filling.value(topic, key, content, times, of=user, user=user)
