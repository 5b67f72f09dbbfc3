"""Opens the embedder that the settings select."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from openmemory.config.sections import EmbedderSettings
from openmemory.egress.clients import Egress
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import Embedder, EmbedderUnavailable

PACKAGED = ("all-MiniLM-L6-v2-int8", "all-MiniLM-L6-v2")
"""The names of the packaged model."""


def default_model(provider: str) -> str:
    """The default model of a provider. Empty if the settings must name one."""
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
    """Returns the configured embedder behind a cache of query vectors.

    Returns at once; the first call loads the model. `trusted` means that an administrator wrote the address into the
    settings, so a private address is allowed. `tokenwise` means that tokens get vectors too, if the embedder can make
    them.

    Raises:
        SetupError: the provider does not exist, or does not support a setting.
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
    """The settings needed to use the same model again, without keys and passwords."""
    address = urlsplit(settings.base_url)
    if address.password is not None:
        address = address._replace(netloc=address.netloc.rpartition("@")[2])
    return {
        "provider": settings.provider,
        "model": settings.model,
        "base_url": urlunsplit(address),
        "dimensions": settings.dimensions,
    }


class UnusableEmbedder:
    """An embedder that cannot be used. Every call fails with the reason."""

    chunking = ""
    tokenwise = False

    def __init__(self, model: str, why: str) -> None:
        self.model = model
        self._why = why

    async def _refuse(self, *_: Any) -> Any:
        raise EmbedderUnavailable(f"the model {self.model} is not available: {self._why}")

    dimension = query = documents = chunks = _refuse

    async def close(self) -> None:
        """Closes nothing."""
