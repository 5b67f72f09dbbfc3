"""What the extraction of facts will go by, and that a key goes to nobody but whom it was given for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from openmemory.config.sections import EmbedderSettings
from openmemory.config.settings import Settings
from openmemory.egress.clients import Egress
from openmemory.embeddings.providers import ProviderEmbedder
from openmemory.errors import Invalid
from openmemory.identity.principal import LOCAL
from openmemory.saved_settings.document import Baseline, masked_section, to_store
from openmemory.saved_settings.providers import canonical, expanded
from openmemory.saved_settings.saved import SavedDocument
from openmemory.saved_settings.schemas import LLMProvider, OpenMemoryConfig
from openmemory.saved_settings.service import Configuration
from openmemory.services import Services

KEY = "sk-0123456789"


@asynccontextmanager
async def configured(services: Services, environ: Mapping[str, str], **settings: Any) -> AsyncIterator[Configuration]:
    """A configuration over the database of the tests, with other settings; nothing is saved afterwards."""
    made = Configuration(services.database, Settings.model_validate(settings), Egress(), environ)
    try:
        yield made
    finally:
        await made.reset(LOCAL)


def llm(**config: Any) -> LLMProvider:
    whole = {"model": "gpt-4o-mini", "temperature": 0.1, "max_tokens": 2000} | config
    return LLMProvider.model_validate({"provider": "openai", "config": whole})


async def test_no_language_model_is_in_force_until_somebody_chooses_one(services: Services) -> None:
    """Though the environment has a key of OpenAI's, and OpenMemory's default is shown."""
    async with configured(services, {"OPENAI_API_KEY": KEY}) as configuration:
        view = await configuration.read(LOCAL)
        assert view.mem0 is not None
        assert view.mem0.llm is not None
        assert view.mem0.llm.provider == "openai"
        assert (await configuration.effective()).llm is None
        await configuration.replace(LOCAL, view)
        assert (await configuration.effective()).llm is None
        await configuration.save_section(LOCAL, "llm", view.mem0.llm)
        found = (await configuration.effective()).llm
        assert found is not None
        assert (found.provider, found.model, found.temperature, found.max_tokens) == (
            "openai",
            "gpt-4o-mini",
            0.1,
            2000,
        )
        assert found.api_key.get_secret_value() == KEY
        assert (found.base_url, found.trusted) == ("", False)
        assert KEY not in repr(found)


async def test_the_language_model_of_the_settings_is_in_force_with_their_key(services: Services) -> None:
    settings = {"provider": "openai", "model": "m", "api_key": KEY, "base_url": "http://127.0.0.1:9/v1"}
    async with configured(services, {}, llm=settings) as configuration:
        found = (await configuration.effective()).llm
        assert found is not None
        assert (found.model, found.api_key.get_secret_value(), found.trusted) == ("m", KEY, True)
        view = await configuration.read(LOCAL)
        assert view.mem0 is not None
        assert view.mem0.llm is not None
        view.mem0.llm.config.temperature = 0.9
        await configuration.replace(LOCAL, view)
        found = (await configuration.effective()).llm
        assert found is not None
        assert (found.temperature, found.api_key.get_secret_value(), found.trusted) == (0.9, KEY, True)


async def test_a_variable_that_is_missing_is_told_of_when_it_is_used(services: Services) -> None:
    async with configured(services, {}) as configuration:
        await configuration.save_section(LOCAL, "llm", llm(api_key="env:LLM_API_KEY"))
        with pytest.raises(
            Invalid, match="must name an existing variable; the service has no environment variable LLM_API_KEY"
        ):
            await configuration.effective()


async def test_instructions_are_told_with_it(services: Services) -> None:
    async with configured(services, {}) as configuration:
        await configuration.save_instructions(LOCAL, OpenMemoryConfig(custom_instructions="Be brief."))
        assert (await configuration.effective()).custom_instructions == "Be brief."


def test_a_reference_in_the_database_is_held_against_the_rule_too() -> None:
    """Whoever can write the row must not read the environment with it."""
    environ = {"OPENMEMORY_DATABASE_URL": "postgresql://u:p@h/d", "SECRET": "s", "GROQ_API_KEY": KEY}
    assert expanded("env:GROQ_API_KEY", environ) == KEY
    for name in ("OPENMEMORY_DATABASE_URL", "SECRET"):
        with pytest.raises(Invalid):
            expanded(f"env:{name}", environ)


@pytest.mark.parametrize(
    ("spelt", "name"),
    [("Azure OpenAI", "azure_openai"), ("aws bedrock", "aws_bedrock"), ("LM Studio", "lmstudio"), ("xAI", "xai"),
     ("Hugging Face", "huggingface"), ("google ai", "gemini"), ("azure_openai", "azure_openai"), ("OLLAMA", "ollama")],
)  # fmt: skip
def test_pages_spell_providers_in_many_ways(spelt: str, name: str) -> None:
    assert canonical(spelt) == name


def test_the_settings_key_is_shown_only_for_the_place_that_it_was_given_for() -> None:
    embedder = {"provider": "openai", "model": "m", "api_key": KEY, "base_url": "https://one.example/v1"}
    before = Baseline.of(Settings.model_validate({"embedder": embedder}))
    section = masked_section("embedder", SavedDocument(), before)
    section["config"]["model"] = "other"
    stored = SavedDocument(embedder=to_store("embedder", section, SavedDocument(), before))
    assert masked_section("embedder", stored, before)["config"]["api_key"] == "********"
    moved = embedder | {"base_url": "https://two.example/v1"}
    after = Baseline.of(Settings.model_validate({"embedder": moved}))
    assert masked_section("embedder", stored, after)["config"]["api_key"] is None


@pytest.mark.parametrize("provider", ["openai", "huggingface", "lmstudio"])
def test_no_variable_of_a_key_goes_to_an_address_that_was_saved(tmp_path: Path, provider: str) -> None:
    """The providers' libraries look into the environment where they are given no key."""
    settings = EmbedderSettings(provider=provider, model="m", base_url="https://example.com/v1")
    assert ProviderEmbedder(settings, tmp_path, trusted=False)._config["api_key"] == "none"
