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
        values = {name: getattr(new, name) for name in _FIELDS}
        values |= self._clean_all({name: values[name] for name in ("text", *_NAMES, "categories", "metadata")}, field)
        self._refuse_injection({name: values[name] for name in ("text", "metadata", *_NAMES, "categories")})
        return CheckedMemory(**values, labels=self.labels(values["text"], values["metadata"]))

    def changed(self, change: MemoryUpdate, field: str = "text") -> MemoryUpdate:
        """The change as it may be made. `field`: the name of the text field in the request.

        Raises:
            Invalid: as `created` does.
        """
        values = {"text": change.text, "metadata": change.metadata, "categories": change.categories}
        clean_values = self._clean_all(values, field)
        self._refuse_injection(clean_values)
        return replace(change, **clean_values)

    def _clean_all(self, values: dict[str, Any], text_field: str = "text") -> dict[str, Any]:
        """The fields without their secrets."""
        if self._capture.secrets == "store":
            return values
        return {
            name: self._clean_tree(value, text_field if name == "text" else name) if value else value
            for name, value in values.items()
        }

    def json_object(self, value: dict[str, Any], field: str) -> dict[str, Any]:
        """A JSON object as it may be stored.

        Raises:
            Invalid: as `created` does.
        """
        clean_values = self._clean_all({field: value})
        self._refuse_injection(clean_values)
        result: dict[str, Any] = clean_values[field]
        return result

    def redacted(self, text: str) -> str:
        """The text with its secrets redacted, unless `capture.secrets` is `store`. They never cause a rejection."""
        return text if self._capture.secrets == "store" else secrets.redacted(text)

    def labels(self, text: str, metadata: dict[str, Any]) -> tuple[str, ...]:
        """The labels of a memory with this text and metadata."""
        if self._capture.injection == "store":
            return ()
        return (injection.LABEL,) if injection.instructs(text) or injection.anywhere(metadata) else ()

    def _refuse_injection(self, values: dict[str, Any]) -> None:
        if self._capture.injection != "refuse":
            return
        if field := next((name for name, value in values.items() if injection.anywhere(value)), None):
            raise Invalid(
                field,
                "looks like a prompt injection; such texts are not stored (capture.injection)",
                code="injection_refused",
                hint='State it as a fact, or set capture.injection to "label", which stores the text labelled as data.',
            )

    def _clean(self, text: str, field: str, name: str = "") -> str:
        """The text without its secrets. `name`: its key in a JSON object."""
        matches = secrets.find_called(name, text) if name else secrets.find(text)
        if not matches:
            return text
        if self._capture.secrets == "refuse":
            raise Invalid(
                field,
                f"looks like it holds {matches[0].kind}; secrets are not stored (capture.secrets)",
                code="secret_refused",
                hint="Leave it out, or write where it is kept. "
                'Set capture.secrets to "redact" to store the rest, or to "store" to store it.',
            )
        return secrets.without(text, matches)

    def _clean_tree(self, value: Any, field: str, name: str = "") -> Any:
        if isinstance(value, str):
            return self._clean(value, field, name)
        if isinstance(value, list | tuple):
            return type(value)(self._clean_tree(item, field, name) for item in value)
        if not isinstance(value, dict):
            return value
        clean_object: dict[str, Any] = {}
        for key, item in value.items():
            clean_key = unique_key = self._clean(key, field)
            number = 1
            # Two redacted keys may be equal.
            while unique_key in clean_object or (unique_key != key and unique_key in value):
                number += 1
                unique_key = f"{clean_key} {number}"
            clean_object[unique_key] = self._clean_tree(item, f"{field}.{clean_key}"[:100], key)
        return clean_object


_FIELDS = tuple(MemoryCreate.__dataclass_fields__)
