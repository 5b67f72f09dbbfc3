"""Providers: the spellings of their names, their addresses, and the owners of key variables. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping

from openmemory.embeddings.providers import PROVIDERS
from openmemory.errors import Invalid
from openmemory.llm import catalogue

OLLAMA = "http://localhost:11434"
"""Ollama's default address."""

OLLAMA_HERE = (OLLAMA, "http://127.0.0.1:11434", "http://[::1]:11434")
"""The addresses of an Ollama on this machine."""

_SPELT = {
    "azureopenai": "azure_openai", "azureopenaistructured": "azure_openai_structured",
    "openaistructured": "openai_structured", "awsbedrock": "aws_bedrock", "googleai": "gemini", "mistral": "mistralai",
}  # fmt: skip

LLMS = catalogue.PROVIDERS.keys() | {"azure_openai_structured", "langchain", "mistralai", "openai_structured"}
"""Language models that may be saved: all that OpenMemory supported. Some cannot be used here; a call of one fails and
states that."""

EMBEDDERS = frozenset({"huggingface", "lmstudio", "local", "ollama", "openai", "together"})
"""Embedders that may be chosen over REST: all of their requests go through `egress`, and none loads a file here."""

BY_SETTINGS = PROVIDERS.keys() - EMBEDDERS
"""Embedders that only the settings can choose: they use this machine's credentials, or run downloaded files."""

WITHOUT_KEY = frozenset({"local", "ollama"})

_ADDRESSED = {
    "huggingface": "huggingface_base_url", "lmstudio": "lmstudio_base_url", "ollama": "ollama_base_url",
    "openai": "openai_base_url", "openai_structured": "openai_base_url", "vllm": "vllm_base_url",
}  # fmt: skip

NEEDS_ADDRESS = frozenset({"huggingface", "lmstudio", "vllm"})
"""Providers without a default address."""

_KEYS = {
    "ANTHROPIC_API_KEY": "anthropic", "AZURE_OPENAI_API_KEY": "azure_openai", "DEEPSEEK_API_KEY": "deepseek",
    "GEMINI_API_KEY": "gemini", "GOOGLE_API_KEY": "gemini", "GROQ_API_KEY": "groq",
    "HUGGINGFACE_API_KEY": "huggingface", "MINIMAX_API_KEY": "minimax", "MISTRAL_API_KEY": "mistralai",
    "OPENAI_API_KEY": "openai", "SARVAM_API_KEY": "sarvam", "TOGETHER_API_KEY": "together", "XAI_API_KEY": "xai",
}  # fmt: skip
"""Maps key variables to the provider in their name. The key is sent to no other provider."""

_REFERENCE = re.compile(r"(?!OPENMEMORY_)(?:[A-Z][A-Z0-9_]*_)?API_KEY")


def canonical(provider: str) -> str:
    """The canonical name of a provider with many spellings: `Azure OpenAI`, `azure_openai`."""
    plain = re.sub(r"[^a-z0-9]+", "", provider.lower())
    return _SPELT.get(plain, plain)


def address_field(provider: str) -> str | None:
    """The configuration field with a provider's address. None if the address is fixed."""
    return _ADDRESSED.get(canonical(provider))


def address_config(provider: str, address: str) -> dict[str, str]:
    """The part of a configuration with the address of a provider. Empty for an unknown provider, which is refused
    elsewhere.

    Raises:
        Invalid: the address of the provider is fixed.
    """
    if (field := address_field(provider)) is not None:
        return {field: address}
    if canonical(provider) in LLMS | EMBEDDERS:
        raise Invalid("address", f"must be left out: {provider} has a fixed one")
    return {}


def reference(key: str | None) -> str | None:
    """The variable that `env:NAME` names. None for a literal key and for no key."""
    return key.removeprefix("env:").strip() if key and key.startswith("env:") else None


def check_reference(name: str, provider: str, field: str, *, elsewhere: bool) -> None:
    """Reject a reference that would send a variable to someone it was not set for.

    `elsewhere`: the key would be sent to an address from this configuration.

    Raises:
        Invalid: it is not an API key variable, or it belongs to another provider.
    """
    if not _REFERENCE.fullmatch(name):
        raise Invalid(
            field,
            "env: must name a variable that ends in API_KEY, such as env:OPENAI_API_KEY, and is not OPENMEMORY_*",
        )
    owner = _KEYS.get(name)
    if owner is not None and owner != canonical(provider).removesuffix("_structured"):
        raise Invalid(
            field, f"{name} is the key of {owner} and is sent only there; name another variable, or send the key"
        )
    if elsewhere:
        raise Invalid(
            field,
            "a variable's key goes only to the provider's own address, or to one that the settings name; send the key "
            "itself, or set embedder.base_url",
        )


def expanded(key: str | None, environ: Mapping[str, str]) -> str:
    """The key to send. References are resolved only here.

    Raises:
        Invalid: this process has no such variable, or may not read it.
    """
    name = reference(key)
    if name is None:
        return key or ""
    if not _REFERENCE.fullmatch(name) or not environ.get(name):
        raise Invalid("api_key", f"must name an existing variable; the service has no environment variable {name[:80]}")
    return environ[name]
