"""Which embedder the settings ask for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openmemory.config.settings import EmbedderSettings
from openmemory.egress.clients import Egress
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import Document, Embedder, EmbedderUnavailable, Question

PACKAGED = ("all-MiniLM-L6-v2-int8", "all-MiniLM-L6-v2")
"""Names of the packaged model."""


def default_model(provider: str) -> str:
    """The model that a provider is asked for where none is named; empty: it has to be named."""
    if provider == "local":
        return PACKAGED[0]
    from openmemory.embeddings.providers import PROVIDERS

    return PROVIDERS[provider].model if provider in PROVIDERS else ""


def open_embedder(
    settings: EmbedderSettings,
    data_dir: Path,
    egress: Egress | None = None,
    *,
    trusted: bool = True,
    tokenwise: bool = True,
) -> CachedEmbedder:
    """The configured embedder behind a cache of query vectors; returns at once, the model loads with the first call.

    `trusted`: an administrator wrote its address into the settings, so that it may be a private one. `tokenwise`: it
    gives tokens vectors too, if it can.

    Raises:
        SetupError: no such provider, or a setting that it has no use for.
    """
    inner: Embedder
    if settings.provider == "local":
        from openmemory.embeddings.local import LocalEmbedder

        inner = LocalEmbedder(settings.threads, tokenwise=tokenwise)
    else:
        from openmemory.embeddings.providers import ProviderEmbedder

        inner = ProviderEmbedder(settings, data_dir, egress, trusted=trusted)
    return CachedEmbedder(inner)


def without_secrets(settings: EmbedderSettings) -> dict[str, Any]:
    """What it takes to ask the same model again, but for keys and passwords."""
    address = urlsplit(settings.base_url)
    if address.password is not None:
        address = address._replace(netloc=address.netloc.rpartition("@")[2])
    return {
        "provider": settings.provider,
        "model": settings.model,
        "base_url": urlunsplit(address),
        "dimensions": settings.dimensions,
    }


class Absent:
    """A model that cannot be asked: every call says why."""

    cutting = ""
    tokenwise = False

    def __init__(self, model: str, why: str) -> None:
        self.model = model
        self._why = why

    async def dimension(self) -> int:
        """See `Embedder`; so are the methods below."""
        raise self._error()

    async def query(self, _text: str) -> Question:
        raise self._error()

    async def documents(self, _texts: Sequence[str]) -> list[Document]:
        raise self._error()

    async def windows(self, _texts: Sequence[str]) -> list[int]:
        raise self._error()

    async def close(self) -> None:
        return None

    def _error(self) -> EmbedderUnavailable:
        return EmbedderUnavailable(f"the model {self.model} cannot be asked: {self._why}")
