"""Wraps any embedder of mem0 (OpenAI-compatible servers, Ollama ...) with deadlines and checks, without telemetry."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import numpy as np
from pydantic import SecretStr

from openmemory.config.sections import EmbedderSettings
from openmemory.egress.clients import Egress
from openmemory.egress.policy import EgressRefused
from openmemory.embeddings import chunks, http_clients
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding, Vector, Vectors
from openmemory.errors import SetupError
from openmemory.resilience.daemon_threads import in_daemon

DOCUMENT_BATCH = 64
"""The number of chunks in one request: about 8,000 tokens. OpenAI accepts 300,000."""

DOCUMENT_PATIENCE = 6.0
"""The deadline of a batch of documents, as a multiple of a query's deadline."""

CONCURRENT_QUERIES = 8
"""The maximum number of concurrent queries. Others wait, within their deadline."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EmbedderProviderSpec:
    """The names that mem0 uses for the settings of one provider.

    Every start passes `model` explicitly, so that a new default in another version of mem0 cannot mix the vectors of
    two models.
    """

    model: str
    base_url: str | None = None


PROVIDERS = {
    "aws_bedrock": EmbedderProviderSpec("amazon.titan-embed-text-v1"),
    "azure_openai": EmbedderProviderSpec("", base_url="azure_kwargs"),
    "fastembed": EmbedderProviderSpec("thenlper/gte-large"),
    "gemini": EmbedderProviderSpec("models/gemini-embedding-001"),
    "huggingface": EmbedderProviderSpec("", base_url="huggingface_base_url"),
    "lmstudio": EmbedderProviderSpec(
        "nomic-ai/nomic-embed-text-v1.5-GGUF/nomic-embed-text-v1.5.f16.gguf", base_url="lmstudio_base_url"
    ),
    "ollama": EmbedderProviderSpec("nomic-embed-text", base_url="ollama_base_url"),
    "openai": EmbedderProviderSpec("text-embedding-3-small", base_url="openai_base_url"),
    "together": EmbedderProviderSpec("intfloat/multilingual-e5-large-instruct"),
    "vertexai": EmbedderProviderSpec("gemini-embedding-001"),
}


def configure_mem0(data_dir: Path) -> None:
    """Prevents mem0 from writing into the user's home folder. Call this before importing mem0."""
    os.environ["MEM0_DIR"] = str(data_dir / "mem0")


class ProviderEmbedder:
    """Embeds through mem0's `EmbedderFactory`. The constructor returns at once: the first call imports mem0.

    No tokenizer is available, so long texts are cut by characters, and their chunks are sent as separate texts.

    Raises:
        SetupError: the provider does not exist, no model is named and the provider has no default, or the address is
            one that the provider does not take or that must not be reached.
    """

    chunking = chunks.BY_CHARACTERS.name
    tokenwise = False

    def __init__(
        self, settings: EmbedderSettings, data_dir: Path, egress: Egress | None = None, *, trusted: bool = True
    ) -> None:
        self._settings = settings
        self._trusted = trusted
        self._data_dir = data_dir
        self._egress = egress or Egress()
        self._config = _config(settings, trusted=trusted)
        address = settings.base_url
        try:
            if address:  # Ollama also accepts `host:port`
                self._egress.check_literal(address if "://" in address else f"http://{address}", trusted=trusted)
        except EgressRefused as error:
            raise SetupError(f"embedder.base_url: {error}") from None
        model = str(self._config["model"])
        self.model = f"{settings.provider}/{model}" + (f"@{settings.dimensions}" if settings.dimensions else "")
        self._size: int | None = None
        self._clients: tuple[Any, Any] | None = None
        self._opening = threading.Lock()
        self._importing = threading.Lock()
        self._queries = asyncio.Semaphore(CONCURRENT_QUERIES)
        self._batches = asyncio.Semaphore(1)
        self._closed = False

    async def dimension(self) -> int:
        """The length of a vector, found by embedding one word."""
        if self._size is None:
            # The first call also imports mem0, which takes seconds on a busy machine.
            await self._embed("dimension", self._settings.timeout * DOCUMENT_PATIENCE)
        assert self._size is not None  # set by every accepted vector
        return self._size

    async def query(self, text: str) -> QueryEmbedding:
        """Embeds one query within the configured deadline."""
        return QueryEmbedding(await self._embed(text, self._settings.timeout), None)

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embeds stored texts as chunks, one batch after the other, each with its own deadline."""
        if not texts:
            return []
        cut = [chunks.of_text(_utf8(text)) for text in texts]
        every = [chunk for one in cut for chunk in one]
        parts: list[Vectors] = []
        for start in range(0, len(every), DOCUMENT_BATCH):
            batch = every[start : start + DOCUMENT_BATCH]
            raw = await self._ask(
                self._batches,
                self._settings.timeout * DOCUMENT_PATIENCE,
                lambda batch=batch: self._open()[1].embed_batch(batch, "add"),  # type: ignore[misc]
            )
            parts.append(self._check(raw, len(batch)))
        vectors = np.split(np.concatenate(parts), np.cumsum([len(one) for one in cut])[:-1])
        return [TextEmbedding(one, None) for one in vectors]

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text."""
        return [len(chunks.of_text(_utf8(text))) for text in texts]

    async def close(self) -> None:
        """Closes the provider's connections. Running calls end by their deadline."""
        self._closed = True
        # A thread that imports native libraries while the interpreter exits would abort the process.
        await asyncio.to_thread(self._importing.acquire)
        self._importing.release()
        clients, self._clients = self._clients, None
        for embedder in clients or ():
            close = getattr(getattr(embedder, "client", None), "close", None)
            if callable(close):
                await asyncio.to_thread(close)

    async def _embed(self, text: str, deadline: float) -> Vector:
        clean = _utf8(text)
        raw = await self._ask(self._queries, deadline, lambda: [self._open()[0].embed(clean, "search")])
        vector: Vector = self._check(raw, 1)[0]
        return vector

    async def _ask(self, slots: asyncio.Semaphore, deadline: float, function: Callable[[], T]) -> T:
        """Runs a blocking call in a thread. Any exception becomes `EmbedderUnavailable`."""
        failure: str
        try:
            async with asyncio.timeout(deadline):
                await slots.acquire()
                return await in_daemon(function, name="embed-provider", ended=slots.release)
        except TimeoutError:
            failure = f"no answer within {deadline:g} s"
        except Exception as error:
            failure = self._message(error)
        # Raised outside the handler: a chained exception of the provider would contain its message, and so the key.
        raise EmbedderUnavailable(f"embedder {self._settings.provider}: {failure}")

    def _open(self) -> tuple[Any, Any]:
        """The mem0 embedders for queries and for documents, which differ only in their timeouts."""
        with self._opening:
            if self._closed:
                raise EmbedderUnavailable("closed")
            if self._clients is None:
                patience = self._settings.timeout, self._settings.timeout * DOCUMENT_PATIENCE
                # Without a configured address, the address comes from the provider or the environment.
                trusted = self._trusted or not self._settings.base_url
                self._clients = http_clients.opened(
                    self._factory(), self._settings.provider, self._config, self._egress, patience, trusted=trusted
                )
            return self._clients

    def _factory(self) -> Any:
        with self._importing:
            if self._closed:
                raise EmbedderUnavailable("closed")
            configure_mem0(self._data_dir)
            from mem0.utils.factory import EmbedderFactory  # type: ignore[import-untyped]

            return EmbedderFactory

    def _check(self, raw: object, count: int) -> Vectors:
        """Validates the vectors and returns them at unit length."""
        try:
            vectors = np.array(raw, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._garbage("vectors that are not numbers of one length") from None
        if vectors.ndim != 2 or vectors.shape[0] != count or vectors.shape[1] == 0:
            raise self._garbage(f"an array of shape {vectors.shape} for {count} texts")
        if self._size is not None and vectors.shape[1] != self._size:
            raise self._garbage(f"{vectors.shape[1]} dimensions; it had {self._size} before")
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(norms).all() or not (norms > 0).all():
            raise self._garbage("a vector without a direction (zero, infinite or not a number)")
        self._size = vectors.shape[1]
        unit: Vectors = (vectors / norms).astype(np.float32)
        return unit

    def _garbage(self, what: str) -> EmbedderUnavailable:
        return EmbedderUnavailable(f"embedder {self._settings.provider} answered {what}")

    def _message(self, error: Exception) -> str:
        """One line about a failure, without secrets."""
        if isinstance(error, EmbedderUnavailable):
            return str(error)
        if isinstance(error.__cause__, EgressRefused):  # OpenAI's client reports it as a connection error
            error = error.__cause__
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return f"the key was refused ({status})"  # such answers often quote parts of the key
        words = " ".join(str(error).split())
        for secret in secrets_of(self._settings.api_key, self._settings.base_url, os.environ):
            words = words.replace(secret, "***")
        return f"{type(error).__name__}: {words[:300]}"


def secrets_of(key: SecretStr, address: str, environ: Mapping[str, str]) -> list[str]:
    """The secrets to remove from messages, longest first, because one may be part of another."""
    secrets = {key.get_secret_value(), urlsplit(address).password or ""} - {""}
    # The providers' libraries also read keys from the environment. Short values there are words rather than keys.
    names = ("_KEY", "_SECRET", "_TOKEN")
    secrets |= {value for name, value in environ.items() if name.endswith(names) and len(value) >= 8}
    return sorted(secrets, key=len, reverse=True)


def _config(settings: EmbedderSettings, *, trusted: bool) -> dict[str, Any]:
    """The settings in the format of mem0."""
    provider = PROVIDERS.get(settings.provider)
    if provider is None:
        raise SetupError(
            f"embedder.provider: {settings.provider!r} is unknown; valid are local, {', '.join(sorted(PROVIDERS))}"
        )
    model = settings.model or provider.model
    if not model:
        raise SetupError(f"embedder.model: {settings.provider} has no default model; name one")
    config: dict[str, Any] = {"model": model}
    key = settings.api_key.get_secret_value()
    if settings.base_url and not key and (settings.provider == "openai" or not trusted):
        # Otherwise a key of the provider in the environment would be sent to an unrelated server.
        key = "none"
    if key:
        config["api_key"] = key
    if settings.dimensions:
        config["embedding_dims"] = settings.dimensions
    if settings.provider == "azure_openai":
        config["azure_kwargs"] = {
            name: value for name, value in (("api_key", key), ("azure_endpoint", settings.base_url)) if value
        }
    elif settings.base_url and provider.base_url is None:
        raise SetupError(f"embedder.base_url: {settings.provider} has a fixed address; leave it empty")
    elif settings.base_url:
        config[str(provider.base_url)] = settings.base_url
    return config


def _utf8(text: str) -> str:
    # JSON can contain lone surrogates, which are not valid UTF-8. Clients fail on them in various ways.
    return text.encode("utf-8", "replace").decode("utf-8")
