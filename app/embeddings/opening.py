"""Which embedder the settings ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from app.config import EmbedderSettings
from app.egress.clients import Egress
from app.embeddings.cache import CachedEmbedder
from app.embeddings.port import Embedder


def open_embedder(settings: EmbedderSettings, data_dir: Path, egress: Egress | None = None) -> CachedEmbedder:
    """The configured embedder behind a cache of query vectors; returns at once, the model loads with the first call.

    Raises:
        SetupError: no such provider, or a setting that it has no use for.
    """
    inner: Embedder
    if settings.provider == "local":
        from app.embeddings.local import LocalEmbedder

        inner = LocalEmbedder(settings.threads)
    else:
        from app.embeddings.providers import ProviderEmbedder

        inner = ProviderEmbedder(settings, data_dir, egress)
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
