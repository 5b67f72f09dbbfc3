"""Reads the stores of Mempack: one file of SQLite for each repository, with its state, memories, links and chunks."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any

from openmemory.importers import sqlite_file
from openmemory.importers.cleaning import Unusable, names, text, words
from openmemory.importers.databases import ForeignDatabase, Show, must_have, read
from openmemory.importers.filling import Filling, filled
from openmemory.importers.source import BadSource
from openmemory.memories.notes import note_text
from openmemory.projects.anchors import COMMIT
from openmemory.serialization import exact_json
from openmemory.sources.cutting import kind_of, language_of
from openmemory.sources.models import SourceKind

_FILE = "memory.db"
_TABLES = {
    "repos": ("repo_id", "git_root", "last_head", "last_branch", "created_at", "last_seen_at"),
    "threads": ("repo_id", "workspace", "thread_id", "title", "tags_json"),
    "memories": ("repo_id", "workspace", "id", "thread_id", "title", "summary", "tags_json", "tags_text",
                 "entities_json", "entities_text", "created_at", "anchor_commit", "superseded_by", "deleted_at"),
    "links": ("from_id", "rel", "to_id", "created_at"),
    "artifacts": ("repo_id", "workspace", "artifact_id", "source", "content_hash"),
    "chunks": ("repo_id", "workspace", "chunk_id", "thread_id", "locator", "text", "tags_json", "tags_text",
               "created_at", "deleted_at"),
    "state_current": ("repo_id", "workspace", "state_json", "updated_at"),
    "state_history": ("repo_id", "workspace", "state_json", "created_at", "reason"),
}  # fmt: skip
_NEEDED = {"repos": ("repo_id", "git_root"), "memories": ("repo_id", "id", "title", "summary")}
_LOCATOR = re.compile(r"(?:git:(?P<commit>[^:]*):|file:)(?P<path>.+?)(?:#L(?P<first>\d{1,9})(?:-L(?P<last>\d{1,9}))?)?")

Namespace = Callable[[str], str | None]
"""Returns the namespace of the project in a folder of this machine; None if there is no such folder."""


def stage(path: Path, filling: Filling, folder: Path, show: Show, namespace: Namespace) -> None:
    """Stages a `memory.db`, a folder with one, or the data folder with those of all repositories. `folder`: for copies.

    Raises:
        BadSource: there is no store, or one of them is damaged or no store of Mempack.
    """
    files = [path] if path.is_file() else sorted(path.glob(f"repos/*/{_FILE}")) or sorted(path.glob(_FILE))
    if not files:
        raise BadSource(f"must be a {_FILE} of Mempack, or its data folder; it has no repos/ID/{_FILE}")
    repos_by_namespace: dict[str, str] = {}
    for file in files:
        try:
            with sqlite_file.opened(file, folder, searched=_TABLES) as database:
                must_have(database, "Mempack", _NEEDED)
                _Store(database, filling, namespace, repos_by_namespace).stage(show)
        except BadSource as error:
            place = "" if file == path else f"{file.relative_to(path).as_posix()}: "
            raise BadSource(f"{place}{error.message}", hint=error.hint) from error


class _Store:
    """Adds the rows of one file. `repos_by_namespace`: the repositories that have a namespace already, by it."""

    def __init__(
        self, database: ForeignDatabase, filling: Filling, namespace: Namespace, repos_by_namespace: dict[str, str]
    ) -> None:
        self._tables = database
        self._filling = filling
        self._namespace = namespace
        self._repos_by_namespace = repos_by_namespace
        self._roots: dict[Any, str] = {}
        self._names: dict[Any, str] = {}
        self._threads: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._hashes: dict[tuple[Any, ...], Any] = {}
        self._files: set[str] = set()
        self._states: dict[tuple[Any, ...], dict[str, Any]] = {}
        # Links and successors name memories by their ids alone.
        columns = [name for name in ("id", "repo_id", "created_at") if name in database.columns["memories"]]
        self._memory_rows = {row["id"]: row for row in database.rows("memories", columns)}

    def stage(self, show: Show) -> None:
        """Stages everything."""
        readers = {
            "repos": (self._repo, "projects", "repo_id"), "threads": (self._thread, "memories", "thread_id"),
            "memories": (self._memory, "memories", "id"), "links": (self._link, "memory_links", "from_id"),
            "artifacts": (self._artifact, "sources", "artifact_id"), "chunks": (self._chunk, "passages", "chunk_id"),
            "state_current": (self._current, "memories", "repo_id"),
        }  # fmt: skip
        history = list[dict[str, Any]]()
        deleted_counts = Counter[str]()
        for table, row in read(self._tables, _TABLES, show, order={"state_history": ("repo_id", "created_at")}):
            if table == "state_history":
                history.append(row)
                continue
            if table == "chunks" and row.get("deleted_at"):
                deleted_counts[table] += 1
                continue
            take, kind, id_ = readers[table]
            with self._filling.reporting(kind, row.get(id_)):
                take(row)
        by_place = {place: list(rows) for place, rows in groupby(sorted(history, key=_sorting), key=_place)}
        for place in self._states | by_place:
            with self._filling.reporting("memories", "state of {} {}".format(*place)):
                self._state(place, by_place.get(place, []))
        if deleted_counts["chunks"]:
            self._filling.staging.general_notes.append(f"Not imported: {deleted_counts['chunks']:,} deleted chunks.")

    def _project(self, repo: Any, workspace: Any) -> str:
        """The namespace of a workspace, as the tools of Mempack name it here."""
        name = self._names.get(repo) or words("repo_id", repo)
        return name if workspace in (None, "", "default") else f"{name}/{workspace}"

    def _repo(self, row: dict[str, Any]) -> None:
        repo, root = text("repo_id", row["repo_id"]), words("git_root", row["git_root"] or "")
        name = self._namespace(root) or PurePath(root).name or repo
        if self._repos_by_namespace.setdefault(name, repo) != repo:
            name = f"{name}-{repo}"
        self._roots[repo], self._names[repo] = root, name
        self._filling.staging.general_notes.append(f"The repository {root} is the project {name}.")
        project = {
            "name": PurePath(root).name, "root": root, "head": row.get("last_head"), "branch": row.get("last_branch"),
            "created_at": row.get("created_at"), "updated_at": row.get("last_seen_at"),
        }  # fmt: skip
        self._filling.project(name, project)

    def _thread(self, row: dict[str, Any]) -> None:
        about = filled(thread_title=row.get("title"), thread_tags=names(row.get("tags_json")))
        self._threads[*_place(row), row["thread_id"]] = about

    def _memory(self, row: dict[str, Any]) -> None:
        repo, thread, successor = row["repo_id"], row.get("thread_id"), row.get("superseded_by") or None
        successor_row = self._memory_rows.get(successor, {})
        superseded_at = successor_row.get("created_at") if successor else None
        state = "deleted" if row.get("deleted_at") else "archived" if successor else "active"
        title, summary = text("title", row["title"]), words("summary", row["summary"] or "")
        metadata = filled(
            tags=_names_of(row, "tags"),
            entities=_names_of(row, "entities"),
            **{COMMIT: row.get("anchor_commit")},
        )
        memory = {
            "id": self._id(row["id"]), "content": note_text(title, summary), "state": state, "thread_id": thread,
            "namespace": self._project(repo, row.get("workspace")), "created_at": row.get("created_at"),
            "metadata": metadata | self._threads.get((*_place(row), thread), {}),
            "deleted_at": row.get("deleted_at") or None, "archived_at": superseded_at if state == "archived" else None,
            "valid_until": superseded_at, "superseded_by": self._id(successor) if successor else None,
        }  # fmt: skip
        self._filling.memory(memory)

    def _id(self, memory: Any) -> str:
        return self._filling.id("memory", str(self._memory_rows.get(memory, {}).get("repo_id")), str(memory))

    def _link(self, row: dict[str, Any]) -> None:
        self._filling.link(self._id(row["from_id"]), row["rel"], self._id(row["to_id"]), row.get("created_at"))

    def _artifact(self, row: dict[str, Any]) -> None:
        self._hashes[*_place(row), row["source"]] = row.get("content_hash")

    def _chunk(self, row: dict[str, Any]) -> None:
        match = _LOCATOR.fullmatch(words("locator", row["locator"]))
        if match is None:
            raise Unusable("locator: must be git:COMMIT:PATH#L1-L9 or file:PATH#L1-L9")
        repo, path = row["repo_id"], match["path"].removeprefix(self._roots.get(row["repo_id"], "\0") + "/")
        namespace, language, created_at = self._project(*_place(row)), language_of(path), row.get("created_at")
        source = self._filling.id("file", str(repo), str(row.get("workspace")), path)
        if source not in self._files:
            self._files.add(source)
            file = {
                "id": source, "kind": SourceKind.FILE, "namespace": namespace, "locator": path, "language": language,
                "hash": self._hashes.get((*_place(row), path)), "created_at": created_at,
            }  # fmt: skip
            self._filling.source(file)
        first, last = (int(match[name] or 0) or None for name in ("first", "last"))
        passage = {
            "id": self._filling.id("chunk", str(repo), str(row["chunk_id"])), "kind": kind_of(language),
            "content": row["text"], "first_line": first, "last_line": last or first, "created_at": created_at,
            "metadata": filled(
                tags=_names_of(row, "tags"), thread_id=row.get("thread_id"), **{COMMIT: match["commit"]}
            ),
        }  # fmt: skip
        self._filling.passage(source, first or 1, passage)

    def _current(self, row: dict[str, Any]) -> None:
        self._states[_place(row)] = row

    def _state(self, place: tuple[Any, ...], history: list[dict[str, Any]]) -> None:
        """The state of a workspace with its earlier texts, of which the last is the present one."""
        texts = [(_json(row), row.get("reason"), row.get("created_at")) for row in history]
        if (now := self._states.get(place)) is not None and (not texts or texts[-1][0] != _json(now)):
            texts.append((_json(now), None, now.get("updated_at")))
        id_ = self._filling.id("state", *map(str, place))
        content, reason, at = texts[-1]
        memory = {
            "id": id_, "content": content, "namespace": self._project(*place), "kind": "state",
            "revision": len(texts), "metadata": filled(reason=reason), "created_at": texts[0][2], "updated_at": at,
        }  # fmt: skip
        if self._filling.memory(memory):
            for number, (content, reason, at) in enumerate(texts, 1):
                revision = {"memory_id": id_, "revision": number, "new_text": content, "changed_at": at,
                            "old_text": texts[number - 2][0] if number > 1 else None,
                            "metadata": filled(reason=reason)}  # fmt: skip
                self._filling.revision(revision)


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["repo_id"], row.get("workspace") or "default"


def _names_of(row: dict[str, Any], field: str) -> list[str]:
    """The tags or entities of a row. Early versions have them only as words."""
    return names(row.get(f"{field}_json")) or words(field, row.get(f"{field}_text") or "").split()


def _sorting(row: dict[str, Any]) -> tuple[str, ...]:
    return (*map(str, _place(row)), str(row.get("created_at")))


def _json(row: dict[str, Any]) -> str:
    """A state as it is stored here."""
    try:
        state = exact_json.loads(words("state_json", row["state_json"]))
    except ValueError:
        state = None
    if not isinstance(state, dict):
        raise Unusable("state_json: must be a JSON object")
    return exact_json.dumps(state).decode()
