"""Replaces the HTTP clients of mem0's embedders, so that requests go only where the settings allow, with our
timeouts."""

from __future__ import annotations

import copy
from typing import Any

from openmemory.egress.clients import Egress


def opened(
    factory: Any,
    provider: str,
    config: dict[str, Any],
    egress: Egress,
    patience: tuple[float, float],
    *,
    trusted: bool = True,
) -> tuple[Any, Any]:
    """Returns mem0's embedders for queries and for documents, each with its seconds of `patience`.

    An address from the settings or the provider's environment is `trusted`. One that was saved over REST is not: it
    must be public or in `egress.allow`. Every request goes through `egress` for openai, azure_openai, lmstudio,
    together, ollama, and huggingface with an address. Not covered: aws_bedrock, gemini and vertexai, whose libraries
    use their own clients; azure_openai when it requests a token without a key; and downloads of local models by
    fastembed and huggingface.
    """
    if provider == "ollama":
        embedder = _ollama(config, egress, trusted)
        return _twin(embedder, embedder.asking(patience[0])), _twin(embedder, embedder.asking(patience[1]))
    embedder = factory.create(provider, dict(config), None)
    client: Any = getattr(embedder, "client", None)
    if not callable(getattr(client, "with_options", None)):
        return embedder, embedder
    # OpenAI's client and those modelled on it. The caller handles retries: a circuit breaker for queries, outbox
    # entries with backoff for documents.
    http = egress.client([str(client.base_url)] if trusted else [], redirects=True)
    queries, documents = (client.with_options(http_client=http, timeout=seconds, max_retries=0) for seconds in patience)
    return _twin(embedder, queries), _twin(embedder, documents)


def _twin(embedder: Any, client: Any) -> Any:
    twin = copy.copy(embedder)
    twin.client = client
    return twin


def _ollama(config: dict[str, Any], egress: Egress, trusted: bool) -> Any:
    """mem0's embedder for Ollama. Its constructor already requests the model, so its client cannot be replaced
    afterwards."""
    from mem0.configs.embeddings.base import BaseEmbedderConfig  # type: ignore[import-untyped]
    from mem0.embeddings.ollama import OllamaEmbedding  # type: ignore[import-untyped]
    from ollama import Client  # type: ignore[import-not-found,unused-ignore]

    class GuardedOllama(OllamaEmbedding):  # type: ignore[misc]
        def _ensure_model_exists(self) -> None:
            self._address = str(self.client._client.base_url)
            self.client: Any = self.asking(None)  # fetching a model takes time
            super()._ensure_model_exists()

        def asking(self, seconds: float | None) -> Any:
            """A client with this timeout."""
            transport = egress.transport([self._address] if trusted else [])
            # Otherwise the library would send OLLAMA_API_KEY, which was not set for this address.
            headers = None if trusted else {"Authorization": "Bearer none"}
            return Client(
                host=self.config.ollama_base_url, transport=transport, timeout=seconds, trust_env=False, headers=headers
            )

    return GuardedOllama(BaseEmbedderConfig(**config))
