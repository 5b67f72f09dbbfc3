"""Turns the records of an archive into table rows. Types are checked, and contents follow the rules of `capture`."""

from __future__ import annotations

import base64
import binascii
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, get_args
from uuid import UUID

import numpy as np

from openmemory.access.restore import IncomingUser
from openmemory.backup.captures import CaptureRecords
from openmemory.backup.fields import STATES, Fields
from openmemory.backup.format import (
    ACCESSES,
    ANCHORS,
    CAPTURES,
    LINKS,
    MAX_REVISION,
    PASSAGES,
    PROJECTS,
    REVISIONS,
    SOURCES,
    STEPS,
    VECTORS,
    VERSION,
    malformed,
)
from openmemory.backup.projects import ProjectRecords
from openmemory.backup.recent import RecentRecords
from openmemory.backup.report import Row, SkippedItems
from openmemory.backup.sources import SourceRecords
from openmemory.categories import descriptions
from openmemory.config.settings import LimitSettings
from openmemory.content_policy.secrets import redacted
from openmemory.embeddings.chunks import MAX_CHUNKS
from openmemory.errors import Invalid
from openmemory.identity.principal import Principal
from openmemory.memories import validation
from openmemory.memories.changes import text_hash
from openmemory.memories.intake import Intake
from openmemory.memories.lifecycle.schemas import Action, CriteriaType
from openmemory.memories.schemas import MemoryUpdate

_NAMED = ("memory", "app", "category")
_MAX_MODEL_LENGTH = 500
_MAX_VECTOR_BYTES = 4 * 65_536
_ROUNDING = 0.01


@dataclass(slots=True)
class Records:
    """Turns the records of one archive into rows, one after the other."""

    intake: Intake
    limits: LimitSettings
    principal: Principal
    """The principal who imports. Only a credential for every user may set values that are shared or globally unique."""
    now: str
    left_out: SkippedItems = field(default_factory=SkippedItems)
    user: IncomingUser | None = None
    counted: Counter[str] = field(default_factory=Counter)
    ours: bool = False
    """True if this service, or another instance of it, wrote the archive, rather than OpenMemory."""
    _recent: RecentRecords = field(default_factory=RecentRecords)
    _user_id: str | None = None
    _owner: tuple[str, str] | None = None
    _with_id: dict[str, tuple[str, Callable[[Fields, int, str], Row]]] = field(init=False)
    """The lists whose records have an id: the name of a record in the report, and what turns it into a row."""
    _others: dict[str, Callable[[str, int, Any], list[Row]]] = field(init=False)

    def __post_init__(self) -> None:
        sources = SourceRecords(self.intake, self.limits, self.now)
        captures = CaptureRecords(self.intake, self.limits, self.principal, self.now, self._recent)
        projects = ProjectRecords(self.intake, self.limits, self.now, self._recent, self.left_out)
        self._with_id = {
            "apps": ("app", self._app), "categories": ("category", self._category),
            "memories": ("memory", self._memory), "status_history": ("history", self._change),
            "access_controls": ("rule", self._rule), "archive_policies": ("policy", self._policy),
            ACCESSES: ("access_log", self._access), CAPTURES: ("capture", captures.capture),
            SOURCES: ("source", sources.source), PASSAGES: ("passage", sources.passage),
        }  # fmt: skip
        self._others = {
            "memory_categories": self._filing, REVISIONS: self._revision, LINKS: self._link, PROJECTS: projects.project,
            ANCHORS: projects.anchor, STEPS: captures.step, VECTORS: self._vector,
        }  # fmt: skip

    def rows(self, kind: str, place: str, number: int, value: Any) -> list[Row]:
        """The rows of one entry of the named list. A record whose content may not be stored is left out.

        Raises:
            BadArchive: the entry has a field of the wrong type, or repeats another one.
        """
        if kind in self._others:
            return self._others[kind](place, number, value)
        name, read = self._with_id[kind]
        fields = Fields(place, value)
        id_ = fields.id()
        self._recent.once(kind, id_, place)
        try:
            return [read(fields, number, id_)]
        except Invalid as error:
            self.left_out.add(name, id_, error.message)
            self.counted[kind] += 1
            return [("incoming_refused", (kind, number, id_))]
        finally:
            self._tell_mended(fields, name, id_)

    def object(self, key: str, value: Any) -> None:
        """Reads an object of the archive that is not a list.

        Raises:
            BadArchive: the archive has another version, or its user is invalid.
        """
        if key == "export_meta":
            fields = Fields(key, value)
            version, self.ours = fields.values.get("version"), bool(fields.optional_text("generator"))
            # A hand-written archive may omit the version or write it as a number.
            if version not in (None, VERSION) and (type(version) is not int or str(version) != VERSION):
                shown = repr(version)[:40] if isinstance(version, str | int) else "another one"
                raise malformed("export_meta.version", f'must be "{VERSION}", not {shown}')
        elif key == "user":
            self._note_user(Fields(key, value))

    def finish(self) -> None:
        """Runs the checks that need the whole archive.

        Raises:
            BadArchive: a memory belongs to a user other than that of the archive.
        """
        if self._owner is not None and self._user_id is not None and self._owner[0] != self._user_id:
            raise malformed(self._owner[1], "must be the id of the archive's user")

    def _note_user(self, fields: Fields) -> None:
        self._user_id = fields.id()
        handle, name, email = (fields.optional_text(each) for each in ("user_id", "name", "email"))
        metadata = fields.mapping("metadata")
        self._tell_mended(fields, "user", self._user_id)
        created = fields.optional_moment("created_at")
        fields.optional_moment("updated_at")
        if email is not None and self.principal.user is not None:
            self.left_out.add("user", self._user_id, "email: only a credential for every user may set it")
            email = None
        id_ = UUID(self._user_id)
        taken = IncomingUser(id_, handle, None if name == handle else name, email, metadata, created)
        try:
            taken = replace(taken, **validation.names(taken, ("name", "email"), self.limits))
            validation.metadata(metadata, self.limits)
        except Invalid as error:
            self.left_out.add("user", self._user_id, error.message)
            taken = IncomingUser(id_, handle, None, None, {}, created)
        self.user = taken

    def _app(self, fields: Fields, number: int, id_: str) -> Row:
        name, metadata = fields.text("name"), fields.mapping("metadata")
        description = fields.optional_text("description")
        fields.optional_id("owner_id")
        created = fields.moment("created_at", self.now)
        active, updated = fields.flag("is_active", True), fields.moment("updated_at", created)
        name = validation.name(name, "name", self.limits)
        validation.metadata(metadata, self.limits)
        description = self._described(description)
        return "incoming_apps", (number, id_, name, description, metadata, active, created, updated)

    def _category(self, fields: Fields, number: int, id_: str) -> Row:
        name, description = fields.text("name"), fields.optional_text("description")
        created = fields.moment("created_at", self.now)
        updated = fields.moment("updated_at", created)
        if description is not None and self.principal.user is not None:
            # Other users assign the same category and would read the description.
            self.left_out.add("category", id_, "description: only a credential for every user may set it")
            description, created, updated = None, self.now, self.now
        [name] = self.intake.changed(MemoryUpdate(categories=(name,))).categories or ()
        description = self._described(description)
        own = self._own_description(id_, fields)
        return "incoming_categories", (number, id_, name, description, created, updated, *own)

    def _own_description(self, category: str, of: Fields) -> tuple[str | None, str | None, str | None]:
        """The user's own description of a category, with the times of creation and update."""
        if of.values.get("own") is None:
            return None, None, None
        fields = Fields(f"{of.place}.own", of.mapping("own"))
        text, created = fields.text("description"), fields.moment("created_at", self.now)
        updated = fields.moment("updated_at", created)
        try:
            return descriptions.checked(text, self.intake), created, updated
        except Invalid as error:
            self.left_out.add("category", category, f"own.{error.message}")
            return None, None, None

    def _memory(self, fields: Fields, number: int, id_: str) -> Row:
        content = fields.text("content")
        self._note_owner(fields)
        created = fields.moment("created_at", self.now)
        archived, deleted, expires, valid_from, valid_until = (fields.optional_moment(each) for each in _TIMES)
        state, app = fields.one_of("state", STATES, "active"), fields.optional_id("app_id")
        superseded_by, revision = fields.optional_id("superseded_by"), fields.whole("revision", 1, MAX_REVISION, 1)
        categories, updated = fields.ids("category_ids"), fields.moment("updated_at", created)
        known = self.intake.created(fields.memory(content), own=True)
        if len(categories) > validation.MAX_CATEGORIES:
            raise Invalid("categories", f"has {len(categories)} entries; the limit is {validation.MAX_CATEGORIES}")
        return "incoming_memories", (
            number, id_, known.text, known.metadata, state, known.namespace, app, known.kind, known.thread_id,
            known.key, known.importance, created, updated, archived, deleted, expires, valid_from, valid_until,
            superseded_by, revision, text_hash(known.text), list(known.labels),
            fields.flag("text_by_user", default=False), categories,
        )  # fmt: skip

    def _note_owner(self, fields: Fields) -> None:
        owner = fields.id("user_id")
        place = f"{fields.place}.user_id"
        if self._owner is None:
            self._owner = owner, place
        if owner != self._owner[0]:
            raise malformed(place, "must be the id of the archive's user")

    def _filing(self, place: str, _: int, value: Any) -> list[Row]:
        fields = Fields(place, value)
        assignment = fields.id("memory_id"), fields.id("category_id")
        if self._recent.place("assignments", assignment, place):
            return []
        return [("incoming_assignments", (*assignment, fields.flag("automatic", default=False)))]

    def _change(self, fields: Fields, number: int, id_: str) -> Row:
        fields.optional_id("changed_by")
        return "incoming_history", (
            number, id_, fields.id("memory_id"), fields.optional_id("app_id"),
            fields.optional_one_of("old_state", STATES), fields.one_of("new_state", STATES),
            fields.moment("changed_at", self.now), fields.optional_one_of("reason", ("expired",)),
        )  # fmt: skip

    def _rule(self, fields: Fields, number: int, id_: str) -> Row:
        sort, effect = fields.text("object_type"), fields.one_of("effect", ("allow", "deny"))
        subject, about = fields.optional_id("subject_id"), fields.optional_id("object_id")
        name, created = fields.optional_text("object_name"), fields.moment("created_at", self.now)
        if sort == "memory" and about is None:
            sort = "all"  # OpenMemory's notation for it
        if fields.text("subject_type", "app") != "app":
            raise Invalid("subject_type", "must be app")
        if sort in _NAMED and about is None:
            raise Invalid("object_id", f"is missing; it must be the id of the {sort}")
        if sort not in (*_NAMED, "namespace", "all"):
            raise Invalid("object_type", "must be memory, app, category, namespace or all")
        if sort == "namespace":
            name = validation.name(name or "", "object_name", self.limits)
        about, name = about if sort in _NAMED else None, name if sort == "namespace" else None
        return "incoming_rules", (number, id_, subject, sort, about, name, effect, created)

    def _policy(self, fields: Fields, number: int, id_: str) -> Row:
        sort, about = fields.text("criteria_type"), fields.optional_id("criteria_id")
        name, days = fields.optional_text("criteria_name"), fields.whole("days_to_archive", -(2**31), 2**31 - 1)
        created, action = fields.moment("created_at", self.now), fields.text("action", "archive")
        if action not in get_args(Action):
            raise Invalid("action", f"must be one of {', '.join(get_args(Action))}")
        if sort not in get_args(CriteriaType):
            raise Invalid("criteria_type", f"must be one of {', '.join(get_args(CriteriaType))}")
        if sort == "user" and about is not None and self._user_id is not None and about != self._user_id:
            raise Invalid("criteria_id", "must be the id of the archive's user")
        if sort in _NAMED and about is None:
            raise Invalid("criteria_id", f"is missing; it must be the id of the {sort}")
        if sort == "namespace":
            name = validation.name(name or "", "criteria_name", self.limits)
        validation.between(days, "days_to_archive", 1, validation.MAX_DAYS)
        name = name if sort == "namespace" else None
        return "incoming_policies", (number, id_, sort, about, name, action, days, created)

    def _revision(self, place: str, number: int, value: Any) -> list[Row]:
        fields = Fields(place, value)
        memory, revision = fields.id("memory_id"), fields.whole("revision", 1, MAX_REVISION)
        old, new, metadata = fields.optional_text("old_text"), fields.text("new_text"), fields.mapping("metadata")
        app, at = fields.optional_id("app_id"), fields.moment("changed_at", self.now)
        self._recent.once(REVISIONS, (memory, revision), place, "revision")
        self._tell_mended(fields, "revision", memory)
        try:
            change = self.intake.changed(MemoryUpdate(text=new, metadata=metadata))
            if old is not None:
                old = self.intake.changed(MemoryUpdate(text=old)).text
        except Invalid as error:
            self.left_out.add("revision", memory, f"revision {revision}: {error.message}")
            return []
        return [("incoming_revisions", (number, memory, revision, old, change.text, change.metadata, app, at))]

    def _link(self, place: str, _: int, value: Any) -> list[Row]:
        fields = Fields(place, value)
        from_id, rel, to_id = fields.id("from_id"), fields.text("rel"), fields.id("to_id")
        app, created = fields.optional_id("app_id"), fields.moment("created_at", self.now)
        self._recent.once(LINKS, (from_id, rel, to_id), place, "link")
        try:
            rel = validation.name(rel, "rel", self.limits)
        except Invalid as error:
            self.left_out.add("link", from_id, error.message)
            return []
        return [("incoming_links", (from_id, rel, to_id, app, created))]

    def _access(self, fields: Fields, number: int, id_: str) -> Row:
        memory, app = fields.id("memory_id"), fields.optional_id("app_id")
        at, sort = fields.moment("accessed_at", self.now), fields.text("access_type")
        metadata = fields.mapping("metadata")
        sort = validation.name(sort, "access_type", self.limits)
        validation.metadata(metadata, self.limits)
        return "incoming_accesses", (number, id_, memory, app, at, sort, _redacted(metadata))

    def _vector(self, place: str, _: int, value: Any) -> list[Row]:
        """The vectors of a text, concatenated. Unusable vectors are no error: the text is embedded again."""
        fields = Fields(place, value)
        id_, model, hash_ = fields.id(), fields.text("model"), fields.text("text_hash")
        try:
            raw = base64.b64decode(fields.text("vector"), validate=True)
        except (binascii.Error, ValueError):
            raise malformed(f"{place}.vector", "must be base64") from None
        chunking = fields.text("chunking", "")
        if max(map(len, (model, hash_, chunking))) > _MAX_MODEL_LENGTH or not (model + hash_ + chunking).isprintable():
            return []
        dimension = _dimension(raw)
        if dimension is None or not chunking.endswith(f" of {dimension}"):
            return []
        if self._recent.place(VECTORS, (id_, model), place):
            return []
        return [("incoming_vectors", (id_, model, hash_, raw, dimension, chunking))]

    def _tell_mended(self, fields: Fields, kind: str, id_: str) -> None:
        for name, numbers in fields.mended.items():
            self.left_out.mend(kind, id_, name, numbers)

    def _described(self, description: str | None) -> str | None:
        if description is None or not description.strip():
            return None
        return self.intake.changed(MemoryUpdate(text=description)).text


_TIMES = ("archived_at", "deleted_at", "expires_at", "valid_from", "valid_until")


def _dimension(raw: bytes) -> int | None:
    """The dimension of the vectors concatenated in `raw`; None if they do not have unit length."""
    if not 0 < len(raw) <= _MAX_VECTOR_BYTES * MAX_CHUNKS or len(raw) % 4:
        return None
    numbers = np.frombuffer(raw, dtype="<f4").astype(np.float64)
    squares = float(numbers @ numbers)
    # The sum of the squares equals the number of unit vectors.
    if not np.isfinite(squares) or not 0 < (count := round(squares)) <= MAX_CHUNKS:
        return None
    if len(numbers) % count or len(raw) > _MAX_VECTOR_BYTES * count:
        return None
    lengths = np.linalg.norm(numbers.reshape(count, -1), axis=1)
    return len(numbers) // count if bool((abs(lengths - 1) < _ROUNDING).all()) else None


def _redacted(value: Any) -> Any:
    """The value with secrets removed, as in our own log entries. Access logs may contain search queries."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_redacted(each) for each in value]
    return {key: _redacted(each) for key, each in value.items()} if isinstance(value, dict) else value
