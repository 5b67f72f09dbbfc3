"""Combines the saved configuration with the settings. Pure functions from sections to sections.

A section is `{"provider": …, "config": {…}}`. A saved section replaces the one of the settings completely; a section
that was never saved follows the settings. The database therefore overrides no setting unintentionally.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from openmemory.config.sections import EmbedderSettings
from openmemory.config.settings import Settings
from openmemory.egress.policy import EgressRefused, Origin
from openmemory.embeddings.opening import PACKAGED, default_model, without_secrets
from openmemory.errors import Invalid
from openmemory.saved_settings.providers import (
    BY_SETTINGS,
    EMBEDDERS,
    LLMS,
    NEEDS_ADDRESS,
    OLLAMA,
    OLLAMA_HERE,
    WITHOUT_KEY,
    address_field,
    canonical,
    check_reference,
    reference,
)
from openmemory.saved_settings.saved import SETTINGS_KEY, SavedDocument, Section
from openmemory.saved_settings.schemas import MASK

Part = Literal["llm", "embedder"]

_PROPOSED = {"model": "gpt-4o-mini", "temperature": 0.1, "max_tokens": 2000, "api_key": "env:OPENAI_API_KEY"}
"""The language model shown if none is chosen: OpenMemory's default. Nothing is sent to it until it is saved."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The sections from the settings. `addresses` are those that an administrator configured there."""

    llm: Section
    embedder: Section
    llm_chosen: bool
    addresses: tuple[str, ...]
    embedder_settings: EmbedderSettings = field(repr=False)

    @classmethod
    def of(cls, settings: Settings, *, here: bool = False) -> Baseline:
        """The part of the settings that a saved configuration can override. `here`: only this machine can reach the
        service, so that an Ollama on this machine needs no setting."""
        embedder, llm = settings.embedder, settings.llm
        embedder_fields = without_secrets(embedder)
        config: dict[str, Any] = {"model": embedder.model or default_model(embedder.provider)}
        _set_field(config, embedder.api_key.get_secret_value(), "api_key")
        _set_field(config, embedder_fields["base_url"], address_field(embedder.provider))
        _set_field(config, embedder.dimensions, "embedding_dims")
        llm_config: dict[str, Any] = dict(_PROPOSED)
        if llm.configured:
            llm_config = {"model": llm.model, "temperature": llm.temperature, "max_tokens": llm.max_tokens}
            _set_field(llm_config, llm.api_key.get_secret_value(), "api_key")
            _set_field(llm_config, llm.base_url, address_field(llm.provider))
        sections = (
            {"provider": llm.provider if llm.configured else "openai", "config": llm_config},
            {"provider": embedder.provider, "config": config},
        )
        addresses = (*map(address_of, sections), embedder_fields["base_url"], llm.base_url)
        return cls(*sections, llm.configured, (*filter(None, addresses), *(OLLAMA_HERE if here else ())), embedder)

    def names(self, address: str) -> bool:
        """Returns True if the settings name the origin of an address."""
        return bool(address) and _origin(address) in set(map(_origin, self.addresses))


def effective_section(part: Part, stored_settings: SavedDocument, baseline: Baseline) -> Section:
    """The effective section."""
    section: Section = getattr(stored_settings, part) or getattr(baseline, part)
    return section


def masked_section(part: Part, stored_settings: SavedDocument, baseline: Baseline) -> Section:
    """A section as shown in answers: keys are masked, references are not."""
    section = effective_section(part, stored_settings, baseline)
    config = {name: value for name, value in section["config"].items() if name != SETTINGS_KEY}
    key = key_of(section, getattr(baseline, part))
    config["api_key"] = key if key is None or reference(key) is not None else MASK
    return {"provider": section["provider"], "config": config}


def key_of(section: Section, base: Section) -> str | None:
    """The key of a section, or its reference. The key of the settings is returned only for the same provider and
    address."""
    config = section["config"]
    if config.get(SETTINGS_KEY):
        return base["config"].get("api_key") if same_place(section, base) else None
    key: str | None = config.get("api_key")
    return key


def address_of(section: Section) -> str:
    """The address of a section's model. Empty means the provider's own address."""
    name = address_field(section["provider"])
    address = str(section["config"].get(name) or "").rstrip("/") if name else ""
    return address or (OLLAMA if canonical(section["provider"]) == "ollama" else "")


def same_place(one: Section, other: Section) -> bool:
    """Returns True if both have the same provider and address, so that a key for one may be sent to the other."""
    same = canonical(one["provider"]) == canonical(other["provider"])
    return same and address_of(one) == address_of(other)


def name_of(section: Section) -> str:
    """The name of a section's model in messages: `ollama/nomic-embed-text`."""
    return f"{canonical(section['provider'])}/{section['config'].get('model', '')}"


def to_store(
    part: Part, section: Section, stored_settings: SavedDocument, baseline: Baseline, *, force: bool = False
) -> Section | None:
    """The section to store for a section of a request. One that comes back as it was shown changes nothing.

    `force`: store it even then.

    Raises:
        Invalid: a field is invalid.
    """
    section = _clean(section)
    before = effective_section(part, stored_settings, baseline)
    if section == _clean(masked_section(part, stored_settings, baseline)) and not force:
        stored_section: Section | None = getattr(stored_settings, part)
        return stored_section
    where = f"mem0.{part}"
    _check_provider(part, section, where)
    config = dict(section["config"])
    key = config.pop("api_key", None)
    if key is not None and set(key) == {"*"}:
        config |= _masked_key(section, before, getattr(baseline, part), f"{where}.config.api_key")
    elif (name := reference(key)) is not None:
        if canonical(section["provider"]) not in WITHOUT_KEY:
            address = address_of(section)
            elsewhere = bool(address) and not baseline.names(address)
            check_reference(name, section["provider"], f"{where}.config.api_key", elsewhere=elsewhere)
        config["api_key"] = f"env:{name}"
    elif key is not None and canonical(section["provider"]) not in WITHOUT_KEY:
        config["api_key"] = key
    return {"provider": section["provider"], "config": config}


def merged(patch: Mapping[str, Any], before: Section) -> Section:
    """Applies a partial section to the shown one. With another provider, the fields of the old one are dropped, except
    `temperature` and `max_tokens`."""
    provider = str(patch.get("provider", before["provider"]))
    changes = dict(patch.get("config", {}))
    if canonical(provider) != canonical(before["provider"]):
        config = {"model": default_model(canonical(provider))} | {
            name: value for name, value in before["config"].items() if name in ("temperature", "max_tokens")
        }
    else:
        config = dict(before["config"])
    return {"provider": provider, "config": config | changes}


def embedder_settings(section: Section, key: str, base: EmbedderSettings) -> EmbedderSettings:
    """Converts a section to embedder settings. `base` has the values that a section does not contain."""
    provider, config = canonical(section["provider"]), section["config"]
    return EmbedderSettings.model_validate(
        {
            "provider": provider,
            "model": "" if provider == "local" else config["model"],
            "api_key": key,
            "base_url": address_of(section),
            "dimensions": config.get("embedding_dims") or 0,
            "timeout": base.timeout,
            "threads": base.threads,
        }
    )


def _check_provider(part: Part, section: Section, where: str) -> None:
    provider, model = canonical(section["provider"]), section["config"].get("model", "")
    providers = LLMS if part == "llm" else EMBEDDERS
    if part == "embedder" and provider in BY_SETTINGS:
        raise Invalid(
            f"{where}.provider", f"{provider} can be chosen only in the settings (embedder.provider in openmemory.toml)"
        )
    if provider not in providers:
        raise Invalid(f"{where}.provider", f"must be a known provider: {', '.join(sorted(providers))}")
    if not model:
        raise Invalid(f"{where}.config.model", f"is required: {provider} has no default")
    if provider == "local" and model not in PACKAGED:
        raise Invalid(f"{where}.config.model", f"local is the packaged model, {PACKAGED[0]}")
    if provider == "local" and section["config"].get("embedding_dims"):
        raise Invalid(f"{where}.config.embedding_dims", "must be left out for local")
    if provider != "local" and model == PACKAGED[0]:
        raise Invalid(f"{where}.config.model", f"must be a model of {provider}, not the packaged one")
    own = address_field(provider)
    if own and provider in NEEDS_ADDRESS and not section["config"].get(own):
        raise Invalid(f"{where}.config.{own}", f"must be given for {provider}")


def _masked_key(section: Section, before: Section, base: Section, field: str) -> dict[str, Any]:
    """The stored key that a masked key refers to."""
    if canonical(section["provider"]) in WITHOUT_KEY:
        return {}
    if same_place(section, before):
        if before is not base and not before["config"].get(SETTINGS_KEY):
            return {"api_key": key} if (key := before["config"].get("api_key")) else {}
        return {SETTINGS_KEY: True}
    if same_place(section, base) and base["config"].get("api_key"):
        return {SETTINGS_KEY: True}
    raise Invalid(
        field, "must be the key itself: no key is saved for this provider and address that the mask could stand for"
    )


def _clean(section: Section) -> Section:
    """The section without empty fields, and without the addresses of other providers."""
    own = address_field(section["provider"])
    config = {
        name: value
        for name, value in section["config"].items()
        if value is not None and value != "" and (name == own or not name.endswith("_base_url"))
    }
    return {"provider": section["provider"].strip(), "config": config}


def _origin(address: str) -> Origin | None:
    try:
        return Origin.of(address if "://" in address else f"http://{address}")
    except EgressRefused:
        return None


def _set_field(config: dict[str, Any], value: Any, name: str | None) -> None:
    if value and name:
        config[name] = value
