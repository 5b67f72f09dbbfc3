"""Opens the configured embedder, from the saved configuration or else from the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openmemory.config.sections import EmbedderSettings
from openmemory.database.engine import Database
from openmemory.egress.clients import Egress
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.opening import UnusableEmbedder, open_embedder, without_secrets
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Invalid, SetupError
from openmemory.index.generations.watcher import ConfiguredEmbedder
from openmemory.saved_settings import document
from openmemory.saved_settings.document import Baseline
from openmemory.saved_settings.providers import canonical, expanded
from openmemory.saved_settings.row import read_settings
from openmemory.saved_settings.saved import SETTINGS_KEY, SavedDocument

TRIAL = 15.0
"""Seconds that a newly saved model has to answer. The first model of a provider also imports its library then."""

_SAVED = "saved"
"""Marks the record of an embedder that was saved over REST. Its address is not trusted like one of the settings."""


class Embedders:
    """Opens embedders. Reads the saved configuration on every call, so that all processes follow a change.

    `tokenwise`: embedders also return token vectors if they can.
    """

    def __init__(
        self,
        database: Database,
        baseline: Baseline,
        data_dir: Path,
        egress: Egress,
        environ: Mapping[str, str],
        *,
        tokenwise: bool = True,
    ) -> None:
        self._database = database
        self._baseline = baseline
        self._data_dir = data_dir
        self._egress = egress
        self._environ = environ
        self._tokenwise = tokenwise
        self._stored_settings = SavedDocument()

    async def first(self) -> ConfiguredEmbedder:
        """The embedder that is configured at startup.

        Raises:
            SetupError: the embedder of the settings cannot be used as configured.
            Unavailable: PostgreSQL does not answer.
        """
        self._stored_settings = await self._read()
        return self._embedder_of(self._stored_settings)

    async def configured(self) -> ConfiguredEmbedder | None:
        """The embedder if it has changed since the last call, else None.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        before, self._stored_settings = self._stored_settings.embedder, await self._read()
        return None if self._stored_settings.embedder == before else self._embedder_of(self._stored_settings)

    def recorded(self, record: dict[str, Any]) -> CachedEmbedder:
        """An embedder that was configured before. A key is sent only to the provider and address it was given for.

        Raises:
            SetupError: it cannot be used any more.
            ValueError: the record cannot be read.
        """
        saved = bool(record.get(_SAVED))
        base = self._baseline.embedder_settings
        fields = {name: value for name, value in record.items() if name != _SAVED}
        other = EmbedderSettings.model_validate(fields | {"timeout": base.timeout, "threads": base.threads})
        key = self._key_for(other) if saved else None
        if key is not None:
            other = EmbedderSettings.model_validate(other.model_dump() | {"api_key": expanded(key, self._environ)})
        elif (other.provider, other.base_url) == (base.provider, without_secrets(base)["base_url"]):
            other = other.model_copy(update={"api_key": base.api_key, "base_url": base.base_url})
        trusted = not saved or self._baseline.names(other.base_url)
        return self._open(other, trusted=trusted)

    async def trial(self) -> str | None:
        """Calls an embedder that was just saved once. Returns the error.

        Returns None if it works, or if it is the one that this process uses already.
        """
        stored_settings = await self._read()
        if stored_settings.embedder == self._stored_settings.embedder:
            return None
        return await self.probe(stored_settings)

    async def probe(self, stored_settings: SavedDocument) -> str | None:
        """Calls the embedder of a configuration once. Returns the error, or None if it works."""
        embedder = self._embedder_of(stored_settings).embedder
        try:
            async with asyncio.timeout(TRIAL):
                await embedder.dimension()
        except EmbedderUnavailable as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {TRIAL:g} s"
        finally:
            await embedder.close()
        return None

    async def _read(self) -> SavedDocument:
        async with self._database.statement() as tx:
            return await read_settings(tx)

    def _embedder_of(self, stored_settings: SavedDocument) -> ConfiguredEmbedder:
        section, base = stored_settings.embedder, self._baseline.embedder_settings
        if section is None:
            return ConfiguredEmbedder(self._open(base), without_secrets(base))
        name = document.name_of(section)
        try:
            key = document.key_of(section, self._baseline.embedder)
            if not section["config"].get(SETTINGS_KEY):
                key = expanded(key, self._environ)
            settings = document.embedder_settings(section, key or "", base)
            trusted = self._baseline.names(settings.base_url)
            embedder = self._open(settings, trusted=trusted)
        except (SetupError, Invalid) as error:
            return ConfiguredEmbedder(CachedEmbedder(UnusableEmbedder(name, error.message)), {})
        except (ValidationError, KeyError, TypeError):
            return ConfiguredEmbedder(CachedEmbedder(UnusableEmbedder(name, "its saved settings cannot be read")), {})
        return ConfiguredEmbedder(embedder, without_secrets(settings) | {_SAVED: True})

    def _open(self, settings: EmbedderSettings, *, trusted: bool = True) -> CachedEmbedder:
        return open_embedder(settings, self._data_dir, self._egress, trusted=trusted, tokenwise=self._tokenwise)

    def _key_for(self, settings: EmbedderSettings) -> str | None:
        """The key that was saved for this provider and address, for the current or an earlier embedder."""
        section = self._stored_settings.embedder
        place = settings.provider, settings.base_url
        if section is not None and place == (canonical(section["provider"]), document.address_of(section)):
            return document.key_of(section, self._baseline.embedder)
        keys = self._stored_settings.former_keys
        return next((one["api_key"] for one in keys if place == (one["provider"], one["base_url"])), None)
