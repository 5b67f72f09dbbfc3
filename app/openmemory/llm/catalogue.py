"""The language model providers of mem0: their addresses, keys and answer formats. Has no side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from openmemory.llm.port import LanguageModel, LlmUnavailable

Form = Literal["schema", "object", "none"]
"""The ways to request JSON: by a schema, as any object, or through the prompt alone."""


@dataclass(frozen=True, slots=True)
class LlmProviderSpec:
    """The name and address field in mem0's factory (`factory`, `base_url`), and the JSON format that the provider
    accepts.

    `guarded`: its requests go through `egress`. `package`: an additional package to install, as
    `openmemory-server[extra]`.
    """

    factory: str
    form: Form
    base_url: str | None = None
    own_address: str = ""
    guarded: bool = True
    package: str = ""
    extra: str = ""


PROVIDERS = {
    "anthropic": LlmProviderSpec("anthropic", "none", "anthropic_base_url", package="anthropic", extra="anthropic"),
    "aws_bedrock": LlmProviderSpec("aws_bedrock", "none", guarded=False, package="boto3", extra="bedrock"),
    "azure_openai": LlmProviderSpec("azure_openai", "schema", "azure_kwargs", package="azure.identity", extra="azure"),
    "deepseek": LlmProviderSpec("deepseek", "object", "deepseek_base_url"),
    "gemini": LlmProviderSpec("gemini", "object", guarded=False, package="google.genai", extra="gemini"),
    "groq": LlmProviderSpec("groq", "object", package="groq", extra="groq"),
    "litellm": LlmProviderSpec("litellm", "none", guarded=False, package="litellm", extra="litellm"),
    "lmstudio": LlmProviderSpec("lmstudio", "schema", "lmstudio_base_url", "http://localhost:1234/v1"),
    "minimax": LlmProviderSpec("minimax", "none", "minimax_base_url"),
    # Uses the OpenAI-compatible part of its API, which needs no separate library and accepts schemas.
    "ollama": LlmProviderSpec("openai", "schema", "openai_base_url"),
    "openai": LlmProviderSpec("openai", "schema", "openai_base_url", "https://api.openai.com/v1"),
    "sarvam": LlmProviderSpec("sarvam", "none", guarded=False),
    "together": LlmProviderSpec("together", "object", package="together", extra="together"),
    "vllm": LlmProviderSpec("vllm", "schema", "vllm_base_url"),
    "xai": LlmProviderSpec("xai", "schema", "xai_base_url"),
}
_ALSO = {"openai_structured": "openai", "azure_openai_structured": "azure_openai"}
"""mem0's variants for a given answer format. We request the format in any case."""


def provider_of(model: LanguageModel) -> LlmProviderSpec:
    """Returns the provider of a model.

    Raises:
        LlmUnavailable: the provider is not supported, or must not be chosen over REST.
    """
    name = _ALSO.get(model.provider, model.provider)
    provider = PROVIDERS.get(name)
    if provider is None:
        raise LlmUnavailable(
            f"llm.provider: {model.provider!r} is unknown; valid are {', '.join(sorted(PROVIDERS))}", setup=True
        )
    if not provider.guarded and not model.by_settings:
        raise LlmUnavailable(
            f"llm.provider: {name} can be chosen only in the settings (llm.provider in openmemory.toml), because its"
            " library uses this machine's credentials",
            setup=True,
        )
    if model.base_url and provider.base_url is None:
        raise LlmUnavailable(f"llm.base_url: {name} has a fixed address; leave it empty", setup=True)
    return provider


def config(model: LanguageModel, provider: LlmProviderSpec) -> dict[str, Any]:
    """The configuration of a model in the format of mem0."""
    key, address = model.api_key.get_secret_value(), address_of(model)
    if address and not key and (provider.factory == "openai" or not model.trusted):
        # Otherwise a key of the provider in the environment would be sent to an unrelated server.
        key = "none"
    options: dict[str, Any] = {
        "model": model.model, "temperature": model.temperature, "max_tokens": model.max_tokens,
    }  # fmt: skip
    if key:
        options["api_key"] = key
    if provider.base_url == "azure_kwargs":
        options["azure_kwargs"] = {
            name: value for name, value in (("api_key", key), ("azure_endpoint", address)) if value
        }
    elif address:
        options[str(provider.base_url)] = address
    return options


def address_of(model: LanguageModel) -> str:
    """The base URL of requests, or an empty string if the configuration names none."""
    address = model.base_url.rstrip("/")
    if model.provider != "ollama":
        return address
    address = address or "http://localhost:11434"
    address = address if "://" in address else f"http://{address}"
    return address if address.endswith("/v1") else f"{address}/v1"


def response_format_of(form: Form, schema: dict[str, Any]) -> dict[str, Any] | None:
    """The `response_format` of a request in OpenAI's API."""
    if form == "schema":
        return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    return {"type": "json_object"} if form == "object" else None


WEAKER: dict[Form, Form] = {"schema": "object", "object": "none"}
"""The next format to request if a server does not accept one."""
