"""A client of the authorization server: fetches its metadata and its keys, and requests tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx

from openmemory.config.sections import OAuthSettings
from openmemory.egress.clients import Egress, small_json
from openmemory.egress.policy import EgressRefused, Origin
from openmemory.errors import SetupError

DEADLINE = 10.0
"""Seconds for all the requests of one fetch."""


class NotFetched(Exception):
    """The authorization server does not return what was requested; the message states why."""


class Issuer:
    """A client of the configured authorization server. Its address and that of its keys are trusted as configured.

    Raises:
        SetupError: one of them is not a web URL.
    """

    def __init__(self, settings: OAuthSettings, egress: Egress) -> None:
        self._settings = settings
        urls = [url for url in (settings.issuer, settings.jwks_url) if url]
        try:
            self._http = egress.async_client(urls, redirects=True)
        except EgressRefused as error:
            raise SetupError(f"{'oauth.jwks_url' if settings.jwks_url else 'oauth.issuer'}: {error}") from None

    async def keys(self) -> dict[str, Any]:
        """Returns the published keys, as a JSON Web Key Set.

        Raises:
            NotFetched: they cannot be fetched now.
        """
        async with _bounded():
            url = self._settings.jwks_url or self.endpoint(await self._metadata(), "jwks_uri")
            return await small_json(self._http, url)

    async def metadata(self) -> dict[str, Any]:
        """Returns the metadata of the authorization server (RFC 8414, OpenID Connect Discovery).

        Raises:
            NotFetched: it cannot be fetched now, or is of another issuer.
        """
        async with _bounded():
            return await self._metadata()

    async def token(
        self, url: str, form: Mapping[str, str], *, client: tuple[str, str] | None = None
    ) -> dict[str, Any]:
        """Returns the answer of the token endpoint, which may be an error of RFC 6749. `client`: the name and password
        of HTTP Basic authentication.

        Raises:
            NotFetched: there is no such answer.
        """
        async with _bounded():
            return await small_json(self._http, url, form=form, auth=client, statuses=(200, 400, 401))

    def endpoint(self, metadata: Mapping[str, Any], name: str) -> str:
        """Returns the address in this member of the metadata.

        Raises:
            NotFetched: it is missing, not a web URL, or without TLS although the issuer has it.
        """
        url = metadata.get(name)
        if not isinstance(url, str):
            hint = "; set oauth.jwks_url" if name == "jwks_uri" else ""
            raise NotFetched(f"the metadata has no {name}{hint}")
        try:
            scheme = Origin.of(url).scheme
        except EgressRefused as error:
            raise NotFetched(f"the {name} in the metadata: {error}") from None
        if scheme == "http" and Origin.of(self._settings.issuer).scheme == "https":
            raise NotFetched(f"the {name} in the metadata must begin with https://")
        return url

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _metadata(self) -> dict[str, Any]:
        """Returns the first available document, which must be the issuer's."""
        failures: list[str] = []
        for url in metadata_urls(self._settings.issuer):
            try:
                document = await small_json(self._http, url)
            except httpx.HTTPError as error:
                failures.append(str(error) or type(error).__name__)
                continue
            if document.get("issuer") != self._settings.issuer:
                # Otherwise one tenant of a server could issue tokens for another.
                raise NotFetched(f"the metadata must name the issuer {self._settings.issuer} (oauth.issuer)")
            return document
        raise NotFetched(f"no metadata of the issuer: {'; '.join(dict.fromkeys(failures))}")


@asynccontextmanager
async def _bounded() -> AsyncIterator[None]:
    """Bounds the time of requests, and describes why they failed."""
    try:
        async with asyncio.timeout(DEADLINE):
            yield
    except TimeoutError:
        raise NotFetched(f"no answer within {DEADLINE:g} s") from None
    except httpx.HTTPError as error:
        raise NotFetched(str(error) or type(error).__name__) from error


def metadata_urls(issuer: str) -> list[str]:
    """Returns the metadata URLs that RFC 8414 and OpenID Connect define for an issuer, which may have a path."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")

    def at(path: str) -> str:
        return urlunsplit(parts._replace(path=path))

    urls = [
        at("/.well-known/oauth-authorization-server" + path),
        at("/.well-known/openid-configuration" + path),
        at(path + "/.well-known/openid-configuration"),
    ]
    return list(dict.fromkeys(urls))
