"""Fetches the metadata that an authorization server publishes: the address of its keys, and the keys."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from openmemory.config.sections import OAuthSettings
from openmemory.egress.clients import Egress, small_json
from openmemory.egress.policy import EgressRefused, Origin
from openmemory.errors import SetupError

DEADLINE = 10.0
"""Seconds for all the requests that one fetch of the keys takes."""


class NotFetched(Exception):
    """The keys cannot be fetched now; the message says why."""


class Issuer:
    """A client of the configured authorization server. Its address and that of its keys are trusted as configured.

    Raises:
        SetupError: one of them is not a web URL.
    """

    def __init__(self, settings: OAuthSettings, egress: Egress) -> None:
        self._settings = settings
        written = [url for url in (settings.issuer, settings.jwks_url) if url]
        try:
            self._http = egress.async_client(written, redirects=True)
        except EgressRefused as error:
            raise SetupError(f"{'oauth.jwks_url' if settings.jwks_url else 'oauth.issuer'}: {error}") from None

    async def keys(self) -> dict[str, Any]:
        """Returns the published keys, as a JSON Web Key Set.

        Raises:
            NotFetched: they cannot be fetched now.
        """
        try:
            async with asyncio.timeout(DEADLINE):
                return await small_json(self._http, self._settings.jwks_url or await self._keys_url())
        except TimeoutError:
            raise NotFetched(f"no answer within {DEADLINE:g} s") from None
        except httpx.HTTPError as error:
            raise NotFetched(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _keys_url(self) -> str:
        """Returns the address of the keys from the metadata. The first available document decides, and must be the
        issuer's."""
        failures: list[str] = []
        for url in metadata_urls(self._settings.issuer):
            try:
                document = await small_json(self._http, url)
            except httpx.HTTPError as error:
                failures.append(str(error) or type(error).__name__)
                continue
            return self._checked(document)
        raise NotFetched(f"no metadata of the issuer: {'; '.join(dict.fromkeys(failures))}")

    def _checked(self, document: dict[str, Any]) -> str:
        if document.get("issuer") != self._settings.issuer:
            # Otherwise one tenant of a server could issue tokens for another.
            raise NotFetched(f"the metadata must name the issuer {self._settings.issuer} (oauth.issuer)")
        url = document.get("jwks_uri")
        if not isinstance(url, str):
            raise NotFetched("the metadata has no jwks_uri; set oauth.jwks_url")
        if Origin.of(url).scheme == "http" and Origin.of(self._settings.issuer).scheme == "https":
            raise NotFetched("the jwks_uri in the metadata must begin with https://")
        return url


def metadata_urls(issuer: str) -> list[str]:
    """Returns the metadata URLs that RFC 8414 and OpenID Connect define for an issuer, which may have a path."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")

    def at(path: str) -> str:
        return urlunsplit(parts._replace(path=path))

    found = [
        at("/.well-known/oauth-authorization-server" + path),
        at("/.well-known/openid-configuration" + path),
        at(path + "/.well-known/openid-configuration"),
    ]
    return list(dict.fromkeys(found))
