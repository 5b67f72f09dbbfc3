"""Turns captures of an archive into rows. Inputs and results are validated as if they were new, so an undo cannot
restore anything that could not be added directly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, get_args

from openmemory.backup.fields import STATES, Fields
from openmemory.backup.format import MAX_REVISION, STEPS, malformed
from openmemory.backup.recent import RecentRecords
from openmemory.backup.report import Row
from openmemory.capture import rows
from openmemory.capture.intake import checked
from openmemory.capture.schemas import CaptureCreate, Role, Turn
from openmemory.capture.status import Status
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.identity.principal import Principal, Scope
from openmemory.memories import validation
from openmemory.memories.intake import Intake
from openmemory.memories.schemas import Event, MemoryCreate, MemoryUpdate

_MAX_NAMESPACES = 1_000
_MAX_STEPS = 1_000
_MAX_INTEGER = 2**31 - 1
_KINDS = ("operation", "refused")
_STATUSES, _EVENTS = tuple(Status), tuple(Event)
_NEEDED = {
    Event.ADD: (), Event.NONE: (), Event.UPDATE: ("before",), Event.DELETE: ("before",),
    Event.SUPERSEDE: ("before", "superseded_id"),
}  # fmt: skip
"""The fields that an operation needs so that it can be undone."""


@dataclass(frozen=True, slots=True)
class CaptureRecords:
    """Turns captures and their steps into rows."""

    intake: Intake
    limits: LimitSettings
    principal: Principal
    """The principal who imports, and for whom unfinished captures will be processed."""
    now: str
    recent: RecentRecords

    def capture(self, fields: Fields, number: int, id_: str) -> Row:
        """A capture, without its operations and refusals.

        Raises:
            Invalid: it may not be stored.
        """
        status = fields.one_of("status", _STATUSES, Status.PENDING)
        if status == Status.WORKING:
            status = Status.PENDING
        created = fields.moment("created_at", self.now)
        updated, finished = fields.moment("updated_at", created), fields.optional_moment("finished_at")
        app, said = fields.optional_id("app_id"), _said(fields)
        counts = [fields.whole(name, 0, _MAX_INTEGER, 0) for name in _COUNTS]
        seconds, error, model = (
            fields.optional_number("seconds"), fields.optional_text("error"), fields.optional_text("model"),
        )  # fmt: skip
        principal = self._principal(fields)
        taken = checked(said, self.intake, self.limits)
        for name, text in (("error", error), ("model", model)):
            if text is not None:
                validation.part(text, name, self.limits.text, "limits.text")
        if principal["namespaces"]:
            principal["namespaces"] = [
                validation.name(each, "namespaces", self.limits) for each in principal["namespaces"]
            ]
        if seconds is not None and seconds < 0:
            raise Invalid("seconds", "must not be negative")
        columns = rows.columns_of(taken)
        return "incoming_captures", (
            number, id_, app, taken.like.namespace, status, columns["input"], columns["options"], principal,
            columns["hash"], *counts, error, model, seconds or 0.0, created, updated, finished,
        )  # fmt: skip

    def step(self, place: str, number: int, value: Any) -> list[Row]:
        """One operation or refusal of a capture."""
        fields = Fields(place, value)
        capture, turn = fields.id("capture_id"), fields.whole("number", 1, _MAX_STEPS)
        kinds = [kind for kind in _KINDS if fields.values.get(kind) is not None]
        if len(kinds) != 1:
            raise malformed(place, f"must have one of {' and '.join(_KINDS)}")
        [kind] = kinds
        self.recent.once(STEPS, (capture, kind, turn), place, "number")
        inside = Fields(f"{place}.{kind}", fields.mapping(kind))
        made = self._refusal(inside) if kind == "refused" else self._operation(inside)
        return [("incoming_steps", (number, capture, kind, turn, *made))]

    def _principal(self, fields: Fields) -> dict[str, Any]:
        """The rights for further processing: those of the capture, limited to those of the importing principal."""
        given = fields.values.get("namespaces") is not None
        namespaces, scopes = fields.texts("namespaces"), fields.texts("scopes")
        if len(namespaces) > _MAX_NAMESPACES:
            raise malformed(f"{fields.place}.namespaces", f"must have at most {_MAX_NAMESPACES:,} entries")
        if any(scope not in tuple(Scope) for scope in scopes):
            raise malformed(f"{fields.place}.scopes", f"must be a list of {', '.join(Scope)}")
        may = self.principal.scopes & {Scope.READ, Scope.WRITE}
        return rows.principal_of(
            replace(
                self.principal,
                namespaces=tuple(namespaces) if given else None,
                scopes=may & {Scope(scope) for scope in scopes},
            )
        )

    def _operation(self, fields: Fields) -> tuple[Any, ...]:
        """The operation's memory, the memory that it supersedes, that one's previous successor, the body, and the
        problem, if any."""
        event = Event(fields.one_of("event", _EVENTS))
        for name in _NEEDED[event]:
            if fields.values.get(name) is None:
                raise fields.wrong(name, "there, so that it can be undone", None)
        memory, followed = fields.id(), fields.optional_id("superseded_id")
        body: dict[str, Any] = {"event": event.value, "revision": _revision(fields, needed=event is not Event.NONE)}
        texts = {"memory": fields.text("memory"), "previous_memory": fields.optional_text("previous_memory")}
        if event is Event.SUPERSEDE:
            body["added"] = fields.flag("added", default=True)
            if fields.flag("verbatim", default=False):
                body["verbatim"] = True
        before = Fields(f"{fields.place}.before", fields.mapping("before")) if "before" in _NEEDED[event] else None
        by = None if before is None else before.optional_id("superseded_by")
        try:
            body |= {name: self._clean(text) for name, text in texts.items() if text is not None}
            if before is not None:
                body["before"] = self._before(before)
        except Invalid as problem:
            return memory, followed, by, {}, problem.message
        return memory, followed, by, body, None

    def _before(self, fields: Fields) -> dict[str, Any]:
        """The earlier state of a memory, validated because an undo may restore it."""
        content, metadata, categories = fields.text("content"), fields.mapping("metadata"), fields.texts("categories")
        change = self.intake.changed(MemoryUpdate(content, metadata, tuple(categories)))
        return {
            "content": change.text, "metadata": change.metadata, "categories": list(change.categories or ()),
            "revision": _revision(fields), "state": fields.one_of("state", STATES),
            "valid_until": fields.optional_moment("valid_until"),
        }  # fmt: skip

    def _refusal(self, fields: Fields) -> tuple[Any, ...]:
        """The same tuple for a refusal. Text that may not be stored is left out."""
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
                    return id_, None, None, {}, problem.message
        return id_, None, None, body, None

    def _clean(self, text: str) -> str:
        cleaned = self.intake.changed(MemoryUpdate(text=text)).text
        assert cleaned is not None
        return cleaned


_COUNTS = ("attempts", "bad_answers", "calls", "prompt_tokens", "completion_tokens")


def _revision(fields: Fields, *, needed: bool = True) -> int | None:
    if not needed and fields.values.get("revision") is None:
        return None
    return fields.whole("revision", 1, MAX_REVISION)


def _said(fields: Fields) -> CaptureCreate:
    given = Fields(f"{fields.place}.input", fields.values.get("input"))
    like = _like(Fields(f"{fields.place}.options", fields.mapping("options")))
    if (given.values.get("text") is None) == (given.values.get("messages") is None):
        raise malformed(given.place, "must have either text or messages")
    if given.values.get("messages") is None:
        return CaptureCreate(replace(like, text=given.text("text")))
    return CaptureCreate(like, _turns(given))


def _turns(given: Fields) -> tuple[Turn, ...]:
    messages = given.values["messages"]
    if not isinstance(messages, list) or not messages:
        raise given.wrong("messages", "a list of one message at least", messages)
    turns: list[Turn] = []
    for number, message in enumerate(messages):
        each = Fields(f"{given.place}.messages[{number}]", message)
        role = each.one_of("role", get_args(Role))
        position = None if each.values.get("position") is None else each.whole("position", 1, MAX_REVISION)
        turns.append(Turn(role, each.text("content"), position))  # type: ignore[arg-type]  # it is one of them
    return tuple(turns)


def _like(fields: Fields) -> MemoryCreate:
    days = fields.values.get("ttl_days")
    times: dict[str, Any] = {name: None if at is None else datetime.fromisoformat(at) for name, at in _moments(fields)}
    return replace(
        fields.memory(""),
        categories=tuple(fields.texts("categories")),
        ttl_days=None if days is None else fields.whole("ttl_days", 1, validation.MAX_DAYS),
        **times,
    )


def _moments(fields: Fields) -> Iterator[tuple[str, str | None]]:
    return ((name, fields.optional_moment(name)) for name in ("created_at", "expires_at", "valid_from", "valid_until"))
