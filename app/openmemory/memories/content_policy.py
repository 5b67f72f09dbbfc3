"""Applies the `capture` policies about secrets and prompt injection to memories. Pure functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from openmemory.config.sections import CaptureSettings
from openmemory.content_policy import injection, secrets
from openmemory.errors import Invalid
from openmemory.memories.schemas import CheckedMemory, MemoryCreate, MemoryUpdate

_NAMES = ("namespace", "thread_id", "kind", "key")


class ContentPolicy:
    """Handles secrets and prompt injection according to `capture`."""

    def __init__(self, capture: CaptureSettings) -> None:
        self._capture = capture

    def created(self, new: MemoryCreate, field: str = "text") -> CheckedMemory:
        """The new memory as it may be stored, with secrets redacted and labels set. `field`: the name of the text field
        in the request.

        Raises:
            Invalid: `secret_refused` or `injection_refused`. It names the field, never the content.
        """
        given = {name: getattr(new, name) for name in _FIELDS}
        given |= self._cleaned({name: given[name] for name in ("text", *_NAMES, "categories", "metadata")}, field)
        self._refuse_injection({name: given[name] for name in ("text", "metadata", *_NAMES, "categories")})
        return CheckedMemory(**given, labels=self.labels(given["text"], given["metadata"]))

    def changed(self, change: MemoryUpdate, field: str = "text") -> MemoryUpdate:
        """The change as it may be made. `field`: the name of the text field in the request.

        Raises:
            Invalid: as `created` does.
        """
        given = {"text": change.text, "metadata": change.metadata, "categories": change.categories}
        cleaned = self._cleaned(given, field)
        self._refuse_injection(cleaned)
        return replace(change, **cleaned)

    def _cleaned(self, given: dict[str, Any], text_field: str = "text") -> dict[str, Any]:
        """The fields without their secrets."""
        if self._capture.secrets == "store":
            return given
        return {
            name: self._clean_tree(value, text_field if name == "text" else name) if value else value
            for name, value in given.items()
        }

    def json_object(self, value: dict[str, Any], field: str) -> dict[str, Any]:
        """A JSON object as it may be stored.

        Raises:
            Invalid: as `created` does.
        """
        cleaned = self._cleaned({field: value})
        self._refuse_injection(cleaned)
        found: dict[str, Any] = cleaned[field]
        return found

    def spoken(self, text: str) -> str:
        """A conversation text as it may be stored. Secrets are redacted; they never cause a rejection."""
        return text if self._capture.secrets == "store" else secrets.redacted(text)

    def labels(self, text: str, metadata: dict[str, Any]) -> tuple[str, ...]:
        """The labels of a memory with this text and metadata."""
        if self._capture.injection == "store":
            return ()
        return (injection.LABEL,) if injection.instructs(text) or injection.anywhere(metadata) else ()

    def _refuse_injection(self, given: dict[str, Any]) -> None:
        if self._capture.injection != "refuse":
            return
        if field := next((name for name, value in given.items() if injection.anywhere(value)), None):
            raise Invalid(
                field,
                "looks like a prompt injection; such texts are not stored (capture.injection)",
                code="injection_refused",
                hint='State it as a fact, or set capture.injection to "label", which stores the text labelled as data.',
            )

    def _clean(self, text: str, field: str, name: str = "") -> str:
        """The text without its secrets. `name`: its key in a JSON object."""
        found = secrets.find_called(name, text) if name else secrets.find(text)
        if not found:
            return text
        if self._capture.secrets == "refuse":
            raise Invalid(
                field,
                f"looks like it holds {found[0].kind}; secrets are not stored (capture.secrets)",
                code="secret_refused",
                hint="Leave it out, or write where it is kept. "
                'Set capture.secrets to "redact" to store the rest, or to "store" to store it.',
            )
        return secrets.without(text, found)

    def _clean_tree(self, value: Any, field: str, name: str = "") -> Any:
        if isinstance(value, str):
            return self._clean(value, field, name)
        if isinstance(value, list | tuple):
            return type(value)(self._clean_tree(item, field, name) for item in value)
        if not isinstance(value, dict):
            return value
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            called = shown = self._clean(key, field)
            number = 1
            while shown in cleaned or (shown != key and shown in value):  # two redacted keys may be equal
                number += 1
                shown = f"{called} {number}"
            cleaned[shown] = self._clean_tree(item, f"{field}.{called}"[:100], key)
        return cleaned


_FIELDS = tuple(MemoryCreate.__dataclass_fields__)
