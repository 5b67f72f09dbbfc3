"""Turns the records of an archive into table rows. Types are checked, and contents follow the rules of `capture`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, NamedTuple, get_args

import numpy as np

from openmemory.backup.captures import CaptureRecords, kind_of_step
from openmemory.backup.fields import NEW, Fields, Row, new_memory, reader
from openmemory.backup.format import VERSION, malformed
from openmemory.backup.recent import RecentRecords
from openmemory.backup.report import SkippedItems
from openmemory.backup.staging import REFUSED
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
from openmemory.projects import anchors
from openmemory.schema.archives import (
    ACCESS_CONTROLS,
    ACCESS_LOGS,
    ANCHORS,
    APPS,
    ARCHIVE_POLICIES,
    CAPTURES,
    CATEGORIES,
    LISTS,
    MEMORIES,
    PASSAGES,
    PROJECTS,
    REVISIONS,
    SOURCES,
    STEPS,
    USER,
    VECTORS,
)
from openmemory.schema.description import ArchiveList
from openmemory.sources.files import checked_path
from openmemory.sources.models import PassageKind, SourceKind
from openmemory.sources.symbols import symbols

_NAMED = ("memory", "app", "category")
_MAX_MODEL_LENGTH = 500
_MAX_VECTOR_BYTES = 4 * 65_536
_ROUNDING = 0.01

_CHECKS: dict[str, Callable[[Any, str, LimitSettings], Any]] = {
    "name": validation.name,
    "metadata": lambda value, name, limits: validation.json_object(value, name, limits.metadata, "limits.metadata"),
}


class _Treatment(NamedTuple):
    """The steps from a record of a list to a row of a table. `rule` changes the row to what may be stored; False: it is
    not needed."""

    read: Callable[[Fields, int], Row]
    key: Callable[[Row], Any]
    checks: list[tuple[str, Callable[[Any, str, LimitSettings], Any]]]
    rule: Callable[[Fields, Row], bool | None] | None
    table: str


@dataclass(slots=True)
class Records:
    """Turns the records of one archive into rows, one after the other."""

    intake: Intake
    limits: LimitSettings
    principal: Principal
    """The principal who imports. Only a credential for every user may set values that are shared or globally unique."""
    now: str
    left_out: SkippedItems = field(default_factory=SkippedItems)
    user: Row | None = None
    left_out_counts: Counter[str] = field(default_factory=Counter)
    ours: bool = False
    """True if this service, or another instance of it, wrote the archive, rather than OpenMemory."""
    _recent: RecentRecords = field(default_factory=RecentRecords)
    _owner: tuple[str, str] | None = None
    _treatments: dict[str, _Treatment] = field(init=False)

    def __post_init__(self) -> None:
        captures = CaptureRecords(self.intake, self.limits, self.principal)
        rules: dict[str, Callable[[Fields, Row], bool | None]] = {
            APPS.name: self._app, CATEGORIES.name: self._category, MEMORIES.name: self._memory,
            ACCESS_CONTROLS.name: self._rule, ARCHIVE_POLICIES.name: self._policy, REVISIONS.name: self._revision,
            ACCESS_LOGS.name: self._access, PROJECTS.name: self._project, ANCHORS.name: self._anchor,
            CAPTURES.name: captures.capture, STEPS.name: captures.step, SOURCES.name: self._source,
            PASSAGES.name: self._passage, VECTORS.name: self._vector,
        }  # fmt: skip
        self._treatments = {
            name: _Treatment(
                reader(of.columns, self.now),
                itemgetter(*of.key),
                [(one.name, _CHECKS[one.checked]) for one in of.columns if one.checked],
                rules.get(name),
                of.staging,
            )
            for name, of in LISTS.items()
        }

    def row(self, of: ArchiveList, place: str, number: int, value: Any) -> tuple[str, Row] | None:
        """The row of one entry of a list, with its table. None: it may not be stored, and is left out.

        Raises:
            BadArchive: the entry has a field of the wrong type, or repeats another one.
        """
        read, key_of, checks, rule, table = self._treatments[of.name]
        fields = Fields(place, value)
        row = read(fields, number)
        if of is MEMORIES:
            self._note_owner(row["user_id"], place)
        elif of is STEPS:
            row["kind"] = kind_of_step(fields)
        id_ = row[of.key[0]]
        if (before := self._recent.place(of.name, key_of(row), place)) is not None:
            if of.repeated == "ignored":
                return None
            raise malformed(f"{place}.{of.field}", f"must be unique; {before} has the same")
        try:
            for name, check in checks:
                if row[name] is not None:
                    row[name] = check(row[name], name, self.limits)
            if rule is not None and rule(fields, row) is False:
                return None
        except Invalid as error:
            self.left_out.add(of.item, id_, error.message)
            self.left_out_counts[of.name] += 1
            return (REFUSED, {"kind": of.name, "place": number, "id": id_}) if of.key == ("id",) else None
        finally:
            if fields.mended:
                self._report_mended(fields, of.item, id_)
        return table, row

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
                actual = repr(version)[:40] if isinstance(version, str | int) else "another one"
                raise malformed("export_meta.version", f'must be "{VERSION}", not {actual}')
        elif key == "user":
            self._note_user(Fields(key, value))

    def finish(self) -> None:
        """Runs the checks that need the whole archive.

        Raises:
            BadArchive: a memory belongs to a user other than that of the archive.
        """
        if self._owner is not None and self.user is not None and self._owner[0] != self.user["id"]:
            raise malformed(self._owner[1], "must be the id of the archive's user")

    def _note_user(self, fields: Fields) -> None:
        self.user = row = reader(USER.columns, self.now)(fields, 1)
        self._report_mended(fields, "user", row["id"])
        if row["email"] is not None and self.principal.user is not None:
            self.left_out.add("user", row["id"], "email: only a credential for every user may set it")
            row["email"] = None
        if row["name"] == row["user_id"]:
            row["name"] = None
        try:
            for name in ("name", "email"):
                if row[name] is not None:
                    row[name] = validation.name(row[name], name, self.limits)
            validation.metadata(row["metadata"], self.limits)
        except Invalid as error:
            self.left_out.add("user", row["id"], error.message)
            row |= {"name": None, "email": None, "metadata": {}}

    def _report_mended(self, fields: Fields, item: str, id_: str) -> None:
        for name, numbers in fields.mended.items():
            self.left_out.mend(item, id_, name, numbers)

    def _app(self, _: Fields, row: Row) -> None:
        row["description"] = self._checked_description(row["description"])

    def _category(self, fields: Fields, row: Row) -> None:
        if row["description"] is not None and self.principal.user is not None:
            # Other users assign the same category and would read the description.
            self.left_out.add("category", row["id"], "description: only a credential for every user may set it")
            row |= {"description": None, "created_at": self.now, "updated_at": self.now}
        [row["name"]] = self.intake.changed(MemoryUpdate(categories=(row["name"],))).categories or ()
        row["description"] = self._checked_description(row["description"])
        if fields.values.get("own") is not None:
            self._describe(row, Fields(f"{fields.place}.own", row["own"]))

    def _describe(self, row: Row, fields: Fields) -> None:
        """Adds the user's own description of a category, with the times of creation and update."""
        text, created_at = fields.text("description"), fields.moment("created_at", self.now)
        updated_at = fields.moment("updated_at", created_at)
        try:
            row["own_description"] = descriptions.checked(text, self.intake)
        except Invalid as error:
            self.left_out.add("category", row["id"], f"own.{error.message}")
        else:
            row |= {"own_created_at": created_at, "own_updated_at": updated_at}

    def _memory(self, _: Fields, row: Row) -> None:
        memory = self.intake.created(new_memory(row["content"], row), own=True)
        if len(row["category_ids"]) > validation.MAX_CATEGORIES:
            number = len(row["category_ids"])
            raise Invalid("categories", f"has {number} entries; the limit is {validation.MAX_CATEGORIES}")
        row |= {name: getattr(memory, name) for name in NEW}
        row |= {"content": memory.text, "hash": text_hash(memory.text), "labels": list(memory.labels)}

    def _note_owner(self, owner: str, place: str) -> None:
        if self._owner is None:
            self._owner = owner, f"{place}.user_id"
        if owner != self._owner[0]:
            raise malformed(f"{place}.user_id", "must be the id of the archive's user")

    def _rule(self, _: Fields, row: Row) -> None:
        sort = row["object_type"]
        if sort == "memory" and row["object_id"] is None:
            sort = "all"  # OpenMemory's notation for it
        if row["subject_type"] != "app":
            raise Invalid("subject_type", "must be app")
        if sort in _NAMED and row["object_id"] is None:
            raise Invalid("object_id", f"is missing; it must be the id of the {sort}")
        if sort not in (*_NAMED, "namespace", "all"):
            raise Invalid("object_type", "must be memory, app, category, namespace or all")
        row |= {"object_type": sort, "object_id": row["object_id"] if sort in _NAMED else None}
        row["object_name"] = self._namespace(sort, row, "object_name")

    def _policy(self, _: Fields, row: Row) -> None:
        sort, about = row["criteria_type"], row["criteria_id"]
        if row["action"] not in get_args(Action):
            raise Invalid("action", f"must be one of {', '.join(get_args(Action))}")
        if sort not in get_args(CriteriaType):
            raise Invalid("criteria_type", f"must be one of {', '.join(get_args(CriteriaType))}")
        if sort == "user" and about is not None and self.user is not None and about != self.user["id"]:
            raise Invalid("criteria_id", "must be the id of the archive's user")
        if sort in _NAMED and about is None:
            raise Invalid("criteria_id", f"is missing; it must be the id of the {sort}")
        row["criteria_name"] = self._namespace(sort, row, "criteria_name")
        validation.between(row["days_to_archive"], "days_to_archive", 1, validation.MAX_DAYS)

    def _namespace(self, sort: str, row: Row, name: str) -> str | None:
        return validation.name(row[name] or "", name, self.limits) if sort == "namespace" else None

    def _revision(self, _: Fields, row: Row) -> None:
        try:
            change = self.intake.changed(MemoryUpdate(text=row["new_text"], metadata=row["metadata"]))
            if row["old_text"] is not None:
                row["old_text"] = self.intake.changed(MemoryUpdate(text=row["old_text"])).text
        except Invalid as error:
            error.message = f"revision {row['revision']}: {error.message}"
            raise
        row |= {"new_text": change.text, "metadata": change.metadata}

    def _access(self, _: Fields, row: Row) -> None:
        row["metadata"] = _redacted(row["metadata"])

    def _project(self, _: Fields, row: Row) -> None:
        self._redact(row, ("name", "root", "repo", "head", "branch"), self.limits.query, "limits.query")
        row["name"] = row["name"] or row["namespace"]

    def _anchor(self, _: Fields, row: Row) -> None:
        row |= {name: anchors.commit(row[name], name) for name in ("head", "commit")}

    def _source(self, _: Fields, row: Row) -> None:
        if row["kind"] in (SourceKind.FILE, SourceKind.DOCUMENT):
            row["locator"] = checked_path(row["locator"], "locator")
        else:
            row["locator"] = validation.name(row["locator"], "locator", self.limits)
        self._redact(row, ("title", "summary"), self.limits.text, "limits.text")

    def _passage(self, _: Fields, row: Row) -> None:
        if row["kind"] == PassageKind.TURN:
            row["role"] = validation.name(row["role"] or "user", "role", self.limits)
        elif row["role"] is not None:
            raise Invalid("role", "must be left out of a passage of a file")
        heading = row["heading"]
        self._redact(row, ("content", "heading"), self.limits.text, "limits.text")
        row["labels"] = list(self.intake.labels(row["content"], {}))
        row["symbols"] = symbols(row["content"], heading) if row["kind"] == PassageKind.CODE else []

    def _redact(self, row: Row, names: Sequence[str], limit: int, setting: str) -> None:
        """Checks texts, and redacts their secrets, as in conversations."""
        for name in names:
            if row[name] is not None:
                row[name] = self.intake.redacted(validation.text(row[name], name, limit, setting))

    def _vector(self, _: Fields, row: Row) -> bool:
        """The vectors of a text, concatenated. Unusable vectors are no error: the text is embedded again."""
        model, hash_, chunking = row["model"], row["text_hash"], row["chunking"]
        if max(map(len, (model, hash_, chunking))) > _MAX_MODEL_LENGTH or not (model + hash_ + chunking).isprintable():
            return False
        row["dimension"] = _dimension(row["vector"])
        return row["dimension"] is not None and chunking.endswith(f" of {row['dimension']}")

    def _checked_description(self, description: str | None) -> str | None:
        if description is None or not description.strip():
            return None
        return self.intake.changed(MemoryUpdate(text=description)).text


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
