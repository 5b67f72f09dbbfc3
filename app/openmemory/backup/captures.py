"""Turns captures of an archive into rows. Inputs and results are validated as if they were new, so an undo cannot
restore anything that could not be added directly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, get_args

from openmemory.backup.fields import NEW, STATES, Fields, Row, new_memory, reader
from openmemory.backup.format import malformed
from openmemory.capture import rows
from openmemory.capture.intake import checked
from openmemory.capture.schemas import CaptureCreate, Role, Turn
from openmemory.capture.status import Status
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.identity.principal import Principal, Scope
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.memories.models import LAST_REVISION
from openmemory.memories.schemas import Event, MemoryCreate, MemoryUpdate
from openmemory.schema.archives import MEMORIES

_MAX_NAMESPACES = 1_000
_KINDS = ("operation", "refused")
_EVENTS = tuple(Event)
_REQUIRED = {
    Event.ADD: (), Event.NONE: (), Event.UPDATE: ("before",), Event.DELETE: ("before",),
    Event.SUPERSEDE: ("before", "superseded_id"),
}  # fmt: skip
"""The fields that an operation needs so that it can be undone."""


@dataclass(frozen=True, slots=True)
class CaptureRecords:
    """Checks captures, and reads and checks their steps."""

    intake: Intake
    limits: LimitSettings
    principal: Principal
    """The principal who imports, and for whom unfinished captures will be processed."""

    def capture(self, fields: Fields, row: Row) -> None:
        """Checks a capture, without its operations and refusals.

        Raises:
            Invalid: it may not be stored.
        """
        if row["status"] == Status.WORKING:
            row["status"] = Status.PENDING
        capture, principal = _read_input(fields), self._principal(fields, row)
        checked_capture = checked(capture, self.intake, self.limits)
        for name in ("error", "model"):
            if row[name] is not None:
                validation.part(row[name], name, self.limits.text, "limits.text")
        if principal["namespaces"]:
            principal["namespaces"] = [
                validation.name(each, "namespaces", self.limits) for each in principal["namespaces"]
            ]
        row["seconds"] = row["seconds"] or 0.0
        if row["seconds"] < 0:
            raise Invalid("seconds", "must not be negative")
        columns = rows.columns_of(checked_capture)
        row |= {"namespace": checked_capture.like.namespace, "principal": principal}
        row |= {name: columns[name] for name in ("input", "options", "hash")}

    def step(self, fields: Fields, row: Row) -> None:
        """Reads an operation or refusal of a capture. What may not be stored becomes the problem of the step."""
        inside = Fields(f"{fields.place}.{row['kind']}", fields.mapping(row["kind"]))
        row |= self._refusal(inside) if row["kind"] == "refused" else self._operation(inside)

    def _principal(self, fields: Fields, row: Row) -> dict[str, Any]:
        """The rights for further processing: those of the capture, limited to those of the importing principal."""
        has_namespaces = fields.values.get("namespaces") is not None
        namespaces, scopes = row["namespaces"], row["scopes"]
        if len(namespaces) > _MAX_NAMESPACES:
            raise malformed(f"{fields.place}.namespaces", f"must have at most {_MAX_NAMESPACES:,} entries")
        if any(scope not in tuple(Scope) for scope in scopes):
            raise malformed(f"{fields.place}.scopes", f"must be a list of {', '.join(Scope)}")
        may = self.principal.scopes & {Scope.READ, Scope.WRITE}
        return rows.principal_of(
            replace(
                self.principal,
                namespaces=tuple(namespaces) if has_namespaces else None,
                scopes=may & {Scope(scope) for scope in scopes},
            )
        )

    def _operation(self, fields: Fields) -> Row:
        """The operation's memory, the memory that it supersedes, that one's previous successor, the body, and the
        problem, if any."""
        event = Event(fields.one_of("event", _EVENTS))
        for name in _REQUIRED[event]:
            if fields.values.get(name) is None:
                raise fields.wrong(name, "there, so that it can be undone", None)
        memory, superseded_id = fields.id(), fields.optional_id("superseded_id")
        body: dict[str, Any] = {"event": event.value, "revision": _revision(fields, needed=event is not Event.NONE)}
        texts = {"memory": fields.text("memory"), "previous_memory": fields.optional_text("previous_memory")}
        if event is Event.SUPERSEDE:
            body["added"] = fields.flag("added", default=True)
            if fields.flag("verbatim", default=False):
                body["verbatim"] = True
        before = Fields(f"{fields.place}.before", fields.mapping("before")) if "before" in _REQUIRED[event] else None
        by = None if before is None else before.optional_id("superseded_by")
        problem = None
        try:
            body |= {name: self._clean(text) for name, text in texts.items() if text is not None}
            if before is not None:
                body["before"] = self._before(before)
        except Invalid as error:
            body, problem = {}, error.message
        return {
            "memory_id": memory, "superseded_id": superseded_id, "superseded_by": by, "body": body, "problem": problem,
        }  # fmt: skip

    def _before(self, fields: Fields) -> dict[str, Any]:
        """The earlier state of a memory, validated because an undo may restore it."""
        content, metadata, categories = fields.text("content"), fields.mapping("metadata"), fields.texts("categories")
        change = self.intake.changed(MemoryUpdate(content, metadata, tuple(categories)))
        return {
            "content": change.text, "metadata": change.metadata, "categories": list(change.categories or ()),
            "revision": _revision(fields), "state": fields.one_of("state", STATES),
            "valid_until": fields.optional_moment("valid_until"),
        }  # fmt: skip

    def _refusal(self, fields: Fields) -> Row:
        """The same for a refusal. Text that may not be stored is left out."""
        body: dict[str, Any] = {}
        id_ = fields.optional_id("id")
        for name, text in (("reason", fields.text("reason")), ("memory", fields.optional_text("memory")),
                           ("detail", fields.optional_text("detail"))):  # fmt: skip
            if text is None:
                continue
            try:
                body[name] = self._clean(text)
            except Invalid as problem:
                if name == "reason":
                    return {"memory_id": id_, "body": {}, "problem": problem.message}
        return {"memory_id": id_, "body": body}

    def _clean(self, text: str) -> str:
        clean_text = self.intake.changed(MemoryUpdate(text=text)).text
        assert clean_text is not None
        return clean_text


def kind_of_step(fields: Fields) -> str:
    """Returns the name of the field with the step, which is its kind.

    Raises:
        BadArchive: it has none, or both.
    """
    kinds = [kind for kind in _KINDS if fields.values.get(kind) is not None]
    if len(kinds) != 1:
        raise malformed(fields.place, f"must have one of {' and '.join(_KINDS)}")
    return kinds[0]


def _revision(fields: Fields, *, needed: bool = True) -> int | None:
    return (fields.whole if needed else fields.optional_whole)("revision", 1, LAST_REVISION)


def _read_input(fields: Fields) -> CaptureCreate:
    input_fields = Fields(f"{fields.place}.input", fields.values.get("input"))
    like = _like(Fields(f"{fields.place}.options", fields.mapping("options")))
    if (input_fields.values.get("text") is None) == (input_fields.values.get("messages") is None):
        raise malformed(input_fields.place, "must have either text or messages")
    if input_fields.values.get("messages") is None:
        return CaptureCreate(replace(like, text=input_fields.text("text")))
    return CaptureCreate(like, _turns(input_fields))


def _turns(fields: Fields) -> tuple[Turn, ...]:
    messages = fields.values["messages"]
    if not isinstance(messages, list) or not messages:
        raise fields.wrong("messages", "a list of one message at least", messages)
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        each = Fields(f"{fields.place}.messages[{number}]", message)
        role: Any = each.one_of("role", get_args(Role))
        turns.append(Turn(role, each.text("content"), each.optional_whole("position", 1, LAST_REVISION)))
    return tuple(turns)


def _like(fields: Fields) -> MemoryCreate:
    moments = ((name, fields.optional_moment(name)) for name in _TIMES)
    times: dict[str, Any] = {name: None if at is None else datetime.fromisoformat(at) for name, at in moments}
    return replace(
        new_memory("", _read_options(fields, 0)),
        categories=tuple(fields.texts("categories")),
        ttl_days=fields.optional_whole("ttl_days", 1, validation.MAX_DAYS),
        **times,
    )


_TIMES = ("created_at", "expires_at", "valid_from", "valid_until")
_read_options = reader([one for one in MEMORIES.columns if one.name in NEW], "")
