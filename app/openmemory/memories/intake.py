"""Checks incoming memories: sizes and characters first, then the `capture` policies. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from openmemory.config.sections import CaptureSettings
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.content_policy import ContentPolicy
from openmemory.memories.schemas import Amendment, CheckedMemory, Expiry, MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State

STATE, KEYED, CHECKPOINT = "state", "keyed", "checkpoint"
"""The kinds of memories that the service makes for projects."""

_OWN = {
    STATE: "save the state of a project with a checkpoint",
    KEYED: "set a value with its topic and key",
}
"""The kinds that only the service makes, and what to do in their place."""

_TIMES = ("created_at", "expires_at", "valid_from", "valid_until")


class Intake:
    """Turns requests into memories and queries that passed all checks."""

    def __init__(self, limits: LimitSettings, capture: CaptureSettings) -> None:
        self._limits = limits
        self._content = ContentPolicy(capture)

    def created(self, new: MemoryCreate, field: str = "text", *, own: bool = False) -> CheckedMemory:
        """The memory as it will be stored. With `capture.secrets` set to `redact` it may differ from the input.

        `field`: the name of the text field in the request. `own`: a kind that the service makes itself is allowed.

        Raises:
            Invalid: a field is blank, too large or cannot be stored, or holds what `capture` refuses.
        """
        limits = self._limits
        if own and new.kind == KEYED:  # with its topic and key before it
            validation.text(new.text, field, limits.value + 2 * limits.name + 3, "limits.value")
        else:
            validation.text(new.text, field, limits.text, "limits.text")
        names = validation.names(new, ("namespace", "thread_id", "kind", "key", "app"), limits)
        new = replace(new, categories=validation.categories(new.categories, limits), **names)
        if not own and new.kind in _OWN:
            raise Invalid("kind", f"{new.kind!r} is reserved; {_OWN[new.kind]}", code="kind_reserved")
        if new.importance is not None and not 0 <= new.importance <= 1:
            raise Invalid("importance", f"must be from 0 to 1, not {new.importance}")
        new = replace(new, **validation.moments(new, _TIMES))
        validation.ttl(new.ttl_days, new.expires_at)
        validation.metadata(new.metadata, limits)
        checked = self._content.created(new, field)
        return replace(checked, categories=validation.one_form(checked.categories))

    def changed(self, change: MemoryUpdate, field: str = "text") -> MemoryUpdate:
        """The change as it will be made. `field`: the name of the text field in the request.

        Raises:
            Invalid: as `created` does.
        """
        if change.text is not None:
            validation.text(change.text, field, self._limits.text, "limits.text")
        if change.metadata is not None:
            validation.metadata(change.metadata, self._limits)
        if change.expiry is not None:
            change = replace(change, expiry=_expires_later(change.expiry))
        if change.categories is None:
            return self._content.changed(change, field)
        change = replace(change, categories=validation.categories(change.categories, self._limits))
        change = self._content.changed(change, field)
        return replace(change, categories=validation.one_form(change.categories or ()))

    def amending(self, amendment: Amendment, field: str = "text") -> Amendment:
        """Returns an amendment whose changes are checked. It raises as `changed` does."""
        return lambda text, metadata: self.changed(amendment(text, metadata), field)

    def json_object(self, value: dict[str, Any], field: str) -> dict[str, Any]:
        """A JSON object as it may be stored in place of a text.

        Raises:
            Invalid: as `created` does.
        """
        validation.json_object(value, field, 4 * self._limits.text, "limits.text")  # a character has up to four bytes
        return self._content.json_object(value, field)

    def redacted(self, text: str) -> str:
        """The text with its secrets redacted, unless `capture.secrets` is `store`. They never cause a rejection."""
        return self._content.redacted(text)

    def narrowed(self, caller: Caller, query: MemoryQuery) -> MemoryQuery:
        """The checked query. An app's query is limited to active memories.

        Raises:
            Invalid: a filter is invalid.
            Forbidden: an app requests what others have read.
        """
        if query.unread:
            caller.must_be_owner("see which memories no app has read", everywhere=False)
        if query.text:
            validation.part(query.text, "search_query", self._limits.query, "limits.query")
        query = validation.narrowing(query, self._limits)
        return query if caller.owner else replace(query, states=(State.ACTIVE,))

    def labels(self, text: str, metadata: dict[str, Any]) -> tuple[str, ...]:
        """The labels of a memory with this text and metadata."""
        return self._content.labels(text, metadata)


def _expires_later(expiry: Expiry) -> Expiry:
    validation.ttl(expiry.ttl_days, expiry.at)
    if expiry.at is None:
        return expiry
    at = validation.moment(expiry.at, "expires_at")
    if at <= datetime.now(UTC):
        raise Invalid("expires_at", "must lie in the future; what is not wanted any more is archived or deleted")
    return replace(expiry, at=at)
