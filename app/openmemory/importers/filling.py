"""Turns what another program stored into rows of a staging: its names become users and apps, and its ids UUIDs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from openmemory.importers.cleaning import Unusable, moment
from openmemory.importers.source import BadSource
from openmemory.importers.staging import Staging
from openmemory.memories.intake import KEYED
from openmemory.projects.singletons import value_topic
from openmemory.serialization.surrogates import replace_in
from openmemory.sources.cutting import pieces
from openmemory.sources.models import PassageKind

_ARCHIVES = "http://openmemory.invalid"
_MAX_NAMED = 1_000_000
"""Maximum number of users, apps and categories, which are held in memory."""


class Filling:
    """Fills a staging. The same things get the same ids in every run.

    Use: `filling.memory({"id": filling.id("memory", key), "content": text, ...}, user=name, app=name)`.
    """

    def __init__(self, staging: Staging, program: str, *, user: str) -> None:
        """`program`: the app of what names none; `user`: the user of what names none."""
        self.staging = staging
        self.program = program
        self._user = user
        self._row_ids: dict[tuple[str, ...], str] = {}
        """The ids of named rows, by table and names."""

    def id(self, *of: str) -> str:
        """The id of something that the program names `of`."""
        return str(uuid5(NAMESPACE_URL, str(replace_in("/".join((_ARCHIVES, self.program, *of))))))

    def memory_id(self, value: Any) -> Any:
        """The id of a memory: a UUID stays, and another value gets one. None stays None."""
        try:
            return str(UUID(str(value)))
        except ValueError:
            return value if value is None else self.id("memory", str(value))

    def user(self, name: str | None) -> str:
        """The id of a user, who is added on first use."""
        handle = name or self._user
        return self._ensure_row("users", handle, user_id=handle)

    def app(self, user: str, name: str | None) -> str:
        """The id of an app of a user, by the user's id."""
        return self._ensure_row("apps", user, name or self.program, owner_id=user)

    def memory(
        self, row: Mapping[str, Any], *, user: Any = None, app: Any = None, categories: Iterable[str] = ()
    ) -> bool:
        """Adds a memory. Returns True if it was added."""
        memory_row = self._with_owner(row, user, app)
        if not self.staging.add("memories", memory_row):
            return False
        for category in categories:
            ids = {"memory_id": row["id"], "category_id": self._ensure_row("categories", category)}
            self.staging.add("memory_categories", ids)
        return True

    def value(
        self, topic: str, key: str, value: str, row: Mapping[str, Any], *, of: str, user: Any = None, app: Any = None
    ) -> None:
        """Adds a value under a topic and a key. `of`: the project or the user that has it in the program."""
        name = f"{value_topic(topic)}/{key}"
        id_ = self.id("memory", of, name)
        memory = {"id": id_, "content": f"{name}: {value}", "kind": KEYED, "key": name, **row}
        self.memory(memory, user=user, app=app)

    def revision(self, row: Mapping[str, Any], *, app: Any = None, user: Any = None) -> None:
        """Adds an earlier or the present text of a memory."""
        id_ = self.id("revision", str(row["memory_id"]), str(row["revision"]))
        self.staging.add("memory_revisions", {"id": id_, **self._with_owner(row, user, app)})

    def link(self, from_id: str, rel: Any, to_id: str, created_at: Any) -> None:
        """Adds a link between two memories."""
        row = {"from_id": from_id, "rel": rel, "to_id": to_id, "created_at": created_at}
        id_ = self.id("link", from_id, str(rel), to_id)
        self.staging.add("memory_links", {"id": id_, **self._with_owner(row, None, None)})

    def project(self, namespace: str, row: Mapping[str, Any]) -> None:
        """Adds a registration of a project."""
        fields = {name: value for name, value in row.items() if value not in ("", None)}
        fields |= {"id": self.id("project", namespace), "namespace": namespace}
        self.staging.add("projects", self._with_owner(fields, None, None))

    def source(self, row: Mapping[str, Any], *, user: Any = None) -> bool:
        """Adds a conversation, a file or a document. Its `passage`s follow. Returns True if it was added."""
        return self.staging.add("sources", self._with_owner(row, user, None))

    def passage(self, source: str, position: int, row: Mapping[str, Any], *, user: Any = None) -> None:
        """Adds a passage of a source; `position` counts from 1."""
        passage = {"id": self.id("passage", source, str(position)), "source_id": source, "position": position}
        self.staging.add("passages", passage | {"user_id": self.user(text_or_none(user)), **row})

    def text(
        self,
        row: Mapping[str, Any],
        text: str,
        kind: PassageKind,
        *,
        first: str = "",
        above: str = "",
        user: Any = None,
    ) -> None:
        """Adds a source with its text, cut as the service cuts it. `first`: a passage before those of the text;
        `above`: the heading of all of them."""
        data = text.encode("utf-8", "replace")
        source = {"hash": hashlib.sha256(data).hexdigest(), "bytes": len(data), **row}
        if not self.source(source, user=user):
            return
        passages: list[dict[str, Any]] = [{"content": first, "heading": above}] if first else []
        for piece in pieces(text, "markdown" if kind is PassageKind.SESSION else source.get("language")):
            heading = " > ".join(each for each in (above, piece.heading) if each) or None
            passages.append({**piece._asdict(), "heading": heading})
        for position, passage in enumerate(passages, 1):
            # The passages of a conversation are read in the order of their times.
            at = later(row.get("created_at"), microseconds=position if kind is PassageKind.SESSION else 0)
            self.passage(row["id"], position, {"kind": kind, **passage, "created_at": at}, user=user)

    @contextmanager
    def reporting(self, table: str, id_: Any) -> Iterator[None]:
        """Reports what cannot be used while the block runs as a row of `table` that is left out."""
        try:
            yield
        except Unusable as error:
            self.staging.refuse(table, {"id": id_}, str(error))

    def _with_owner(self, row: Mapping[str, Any], user: Any, app: Any) -> dict[str, Any]:
        owner = self.user(text_or_none(user))
        return {**row, "user_id": owner, "app_id": self.app(owner, text_or_none(app))}

    def _ensure_row(self, table: str, *of: str, **row: str) -> str:
        """The id of a named row, which is added on first use. The last of `of` is its name."""
        if (row_id := self._row_ids.get((table, *of))) is not None:
            return row_id
        if len(self._row_ids) >= _MAX_NAMED:
            raise BadSource(f"names more than {_MAX_NAMED:,} users, apps and categories")
        self._row_ids[table, *of] = id_ = self.id(table, *of)
        self.staging.add(table, {"id": id_, "name": of[-1], **row})
        return id_


def text_or_none(value: Any) -> str | None:
    """Returns a text without surrounding blanks. None if nothing is left, or if the value is no text."""
    return value.strip() or None if isinstance(value, str) else None


def object_of(value: Any) -> dict[str, Any]:
    """The JSON object in a column; one with the key `value` for other JSON, and empty for none."""
    document = parsed(value)
    if document is None:
        return {}
    return document if isinstance(document, dict) else {"value": document}


def list_of(value: Any) -> list[Any]:
    """The JSON array in a column; empty for anything else."""
    document = parsed(value)
    return document if isinstance(document, list) else []


def parsed(value: Any) -> Any:
    """The JSON in a column, which may be parsed already. A text that is none stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value or None


def filled(**fields: Any) -> dict[str, Any]:
    """The fields of metadata that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}


def later(value: Any, **by: float) -> str | None:
    """The time that is this much after another; None if the other one is none."""
    try:
        return (datetime.fromisoformat(moment("created_at", value)) + timedelta(**by)).isoformat()
    except (ValueError, OverflowError):
        return None
