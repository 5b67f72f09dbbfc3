"""Reads the saved configuration from any row content. Pure functions.

An unreadable part counts as not saved and is reported. It cannot prevent the service from starting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from openmemory.saved_settings.schemas import EmbedderConfig, EmbedderProvider, LLMConfig, LLMProvider, OpenMemoryConfig


class _LLMConfig(LLMConfig):
    settings_key: bool | None = None


class _LLM(LLMProvider):
    config: _LLMConfig


class _EmbedderConfig(EmbedderConfig):
    settings_key: bool | None = None


class _Embedder(EmbedderProvider):
    config: _EmbedderConfig


class _Kept(BaseModel):
    model_config = ConfigDict(extra="forbid")

    provider: str
    base_url: str
    api_key: str


@dataclass(frozen=True, slots=True)
class Saved:
    """The readable parts, unchanged, and the names of the unreadable ones."""

    instructions: str | None
    llm: dict[str, Any] | None
    embedder: dict[str, Any] | None
    kept: tuple[Mapping[str, str], ...]
    unreadable: tuple[str, ...]


_KNOWN = ("openmemory", "mem0", "kept")
_SECTIONS = ("llm", "embedder")


def read(value: Any) -> Saved:
    """The parts of the column value. Null counts as missing."""
    unreadable: list[str] = []
    if not isinstance(value, dict | None):
        return Saved(None, None, None, (), ("all of it",))
    parts = value or {}
    mem0 = parts.get("mem0")
    if not isinstance(mem0, dict | None):
        unreadable.append("mem0")
        mem0 = None

    def checked(name: str, model: type[BaseModel], part: Any) -> dict[str, Any] | None:
        if part is None:
            return None
        try:
            model.model_validate(part, strict=True)
        except ValidationError:
            unreadable.append(name)
            return None
        found: dict[str, Any] = part
        return found

    instructions = (checked("openmemory", OpenMemoryConfig, parts.get("openmemory")) or {}).get("custom_instructions")
    llm = checked("mem0.llm", _LLM, (mem0 or {}).get("llm"))
    embedder = checked("mem0.embedder", _Embedder, (mem0 or {}).get("embedder"))
    kept = parts.get("kept") or []
    if not isinstance(kept, list):
        unreadable.append("kept")
        kept = []
    keys = [key for number, one in enumerate(kept) if (key := checked(f"kept[{number}]", _Kept, one)) is not None]
    # Only counted, because their content may be an API key.
    others = [name for name in parts if name not in _KNOWN] + [name for name in mem0 or {} if name not in _SECTIONS]
    if others:
        unreadable.append(f"{len(others)} of its fields")
    return Saved(instructions, llm, embedder, tuple(keys), tuple(unreadable))
