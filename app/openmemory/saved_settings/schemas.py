"""The configuration as OpenMemory's clients read and send it. Extension fields appear only if they are set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_serializer, model_validator

MASK = "********"
"""Replaces an API key in answers. If it is sent back, the key stays unchanged."""


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain a NUL character")
    return text


Storable = AfterValidator(_storable)
Name = Annotated[str, Field(min_length=1, max_length=256), Storable]
Address = Annotated[str, Field(max_length=2_000), Storable]
Key = Annotated[str, Field(max_length=4_000, pattern=r"^[!-~]*$")]
Dimensions = Annotated[int, Field(ge=0, le=65_536)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
MaxTokens = Annotated[int, Field(ge=1, le=10_000_000)]
Instructions = Annotated[str, Field(max_length=16_000), Storable]

_KEY = Field(default=None, description=f"An API key, or `env:NAME` of a variable; shown as {MASK}.")
_OLLAMA = Field(default=None, description="Address of Ollama; left out: http://localhost:11434.")


_NOTE = Field(default=None, description="A remark on the configuration that was saved; ignored if sent.")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _ModelConfig(_Strict):
    """Base of the parameters of a model. Ignores fields that only other kinds of models have."""

    @model_validator(mode="before")
    @classmethod
    def _own(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name in cls.model_fields or name not in _ANY_MODEL}


class _Extended(_Strict):
    """`extensions` are left out of an answer where they are not set, for they are none of OpenMemory's keys."""

    extensions: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _omit_unset(self, serialize: Callable[[Any], dict[str, Any]]):  # type: ignore[no-untyped-def]
        # No return type, so that the OpenAPI schema keeps the fields of the model.
        return {
            name: value for name, value in serialize(self).items() if value is not None or name not in self.extensions
        }


class _LLMFields(_ModelConfig):
    model: Name
    temperature: Temperature = 0.1
    max_tokens: MaxTokens = 2000
    api_key: Key | None = _KEY
    ollama_base_url: Address | None = _OLLAMA
    openai_base_url: Address | None = None
    lmstudio_base_url: Address | None = None
    vllm_base_url: Address | None = None


class LLMConfig(_Extended, _LLMFields):
    """The parameters of requests to a language model."""

    extensions = frozenset({"openai_base_url", "lmstudio_base_url", "vllm_base_url"})


class LLMProvider(_Strict):
    """The language model that extracts facts from texts."""

    provider: Name
    config: LLMConfig


class _EmbedderFields(_ModelConfig):
    model: Name
    api_key: Key | None = _KEY
    ollama_base_url: Address | None = _OLLAMA
    openai_base_url: Address | None = None
    lmstudio_base_url: Address | None = None
    huggingface_base_url: Address | None = None
    embedding_dims: Dimensions | None = None


class EmbedderConfig(_Extended, _EmbedderFields):
    """The parameters of requests to an embedding model."""

    extensions = frozenset({"openai_base_url", "lmstudio_base_url", "huggingface_base_url", "embedding_dims"})


class EmbedderProvider(_Strict):
    """The model that turns texts into vectors."""

    provider: Name
    config: EmbedderConfig


class VectorStoreProvider(_Strict):
    """Where vectors are. It is set by the settings alone."""

    provider: Name
    config: dict[str, Any]


class OpenMemoryConfig(_Strict):
    """Further instructions to the language model."""

    custom_instructions: Instructions | None = None


class Mem0Config(_Strict):
    """The models."""

    llm: LLMProvider | None = None
    embedder: EmbedderProvider | None = None
    vector_store: VectorStoreProvider | None = None


class ConfigSchema(_Extended):
    """The configuration."""

    extensions = frozenset({"note"})

    openmemory: OpenMemoryConfig | None = None
    mem0: Mem0Config | None = None
    note: str | None = _NOTE


class LLMConfigPatch(_LLMFields):
    """Some of the fields of `LLMConfig`."""

    model: Name = ""
    temperature: Temperature = 0.0
    max_tokens: MaxTokens = 1


class LLMPatch(_Strict):
    """A part of `LLMProvider`."""

    provider: Name = ""
    config: LLMConfigPatch = LLMConfigPatch()


class EmbedderConfigPatch(_EmbedderFields):
    """Some of the fields of `EmbedderConfig`."""

    model: Name = ""


class EmbedderPatch(_Strict):
    """A part of `EmbedderProvider`."""

    provider: Name = ""
    config: EmbedderConfigPatch = EmbedderConfigPatch()


class Mem0Patch(_Strict):
    """A part of `Mem0Config`."""

    llm: LLMPatch | None = None
    embedder: EmbedderPatch | None = None
    vector_store: VectorStoreProvider | None = None


class ConfigPatch(_Strict):
    """A part of the configuration: what is left out stays as it is, null takes back what was saved."""

    openmemory: OpenMemoryConfig | None = None
    mem0: Mem0Patch | None = None
    note: str | None = _NOTE


_ANY_MODEL = LLMConfig.model_fields.keys() | EmbedderConfig.model_fields.keys()
