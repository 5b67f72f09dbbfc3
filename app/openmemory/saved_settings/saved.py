"""The saved configuration: reads it from any row content, and writes it. Pure functions.

An unreadable part counts as not saved and is reported. It cannot prevent the service from starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from openmemory.saved_settings.schemas import EmbedderProvider, LLMProvider, OpenMemoryConfig

Section = dict[str, Any]

SETTINGS_KEY = "settings_key"
"""The field of a stored section that refers to the key of the settings, which is not copied into the database."""


class _FormerKey(BaseModel):
    model_config = ConfigDict(extra="forbid")

    provider: str
    base_url: str
    api_key: str


@dataclass(frozen=True, slots=True)
class SavedDocument:
    """The saved configuration. `former_keys`: keys of replaced embedders whose vectors are still in use."""

    instructions: str | None = None
    llm: Section | None = None
    embedder: Section | None = None
    former_keys: tuple[Mapping[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    """The unreadable parts of the column, which count as not saved. The next change removes them."""

    @classmethod
    def of(cls, value: Any) -> SavedDocument:
        """Reads any value of the column. Null counts as missing."""
        unreadable: list[str] = []
        if not isinstance(value, dict | None):
            return cls(unreadable=("all of it",))
        parts = value or {}
        mem0 = parts.get("mem0")
        if not isinstance(mem0, dict | None):
            unreadable.append("mem0")
            mem0 = None
        mem0 = mem0 or {}

        def checked(name: str, model: type[BaseModel], part: Any) -> Section | None:
            if part is None:
                return None
            try:
                model.model_validate(_without_reference(part), strict=True)
            except ValidationError:
                unreadable.append(name)
                return None
            section: Section = part
            return section

        openmemory = checked("openmemory", OpenMemoryConfig, parts.get("openmemory")) or {}
        llm = checked("mem0.llm", LLMProvider, mem0.get("llm"))
        embedder = checked("mem0.embedder", EmbedderProvider, mem0.get("embedder"))
        entries = parts.get("kept") or []
        if not isinstance(entries, list):
            unreadable.append("kept")
            entries = []
        keys = [
            key
            for number, one in enumerate(entries)
            if (key := checked(f"kept[{number}]", _FormerKey, one)) is not None
        ]
        # Only counted, because their content may be an API key.
        if others := len(parts.keys() - {"openmemory", "mem0", "kept"}) + len(mem0.keys() - {"llm", "embedder"}):
            unreadable.append(f"{others} of its fields")
        return cls(openmemory.get("custom_instructions"), llm, embedder, tuple(keys), tuple(unreadable))

    def value(self) -> dict[str, Any]:
        """The value for the column, which contains only what was saved."""
        value: dict[str, Any] = {}
        if self.instructions is not None:
            value["openmemory"] = {"custom_instructions": self.instructions}
        if mem0 := {name: part for name in ("llm", "embedder") if (part := getattr(self, name)) is not None}:
            value["mem0"] = mem0
        if self.former_keys:
            value["kept"] = [dict(one) for one in self.former_keys]
        return value


def _without_reference(part: Any) -> Any:
    """A section without its reference to the key of the settings, which no client sends."""
    if not isinstance(part, dict) or not isinstance(config := part.get("config"), dict):
        return part
    return part | {"config": {name: value for name, value in config.items() if (name, value) != (SETTINGS_KEY, True)}}
