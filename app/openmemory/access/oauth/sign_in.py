"""Signs people in through the authorization server, with the authorization code flow and PKCE (OAuth 2.1)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import quote_plus, urlencode, urlsplit, urlunsplit

from openmemory.access.oauth.issuer import Issuer, NotFetched
from openmemory.config.sections import OAuthSettings
from openmemory.egress.clients import Egress
from openmemory.errors import Unauthenticated, Unavailable

REDIRECT_PATH = "/ui/sign-in/callback"
"""The path below `oauth.resource` to which the authorization server sends the browser back."""

METADATA_SECONDS = 600.0
"""Seconds for which the metadata of the authorization server is used."""

_MAX_WORDS = 300
"""The maximum number of characters of the authorization server's own words in an error."""


@dataclass(frozen=True, slots=True)
class PendingSignIn:
    """A sign-in that a browser began. Only this browser may hold it.

    `state` comes back in the address with the code. `verifier` proves to the authorization server that the code was
    requested by the same sign-in.
    """

    state: str = field(repr=False)
    verifier: str = field(repr=False)


class OAuthSignIn:
    """The page as a client of the authorization server. `clock` counts seconds from any starting point."""

    def __init__(self, settings: OAuthSettings, issuer: Issuer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.resource = settings.resource
        self.host = urlsplit(settings.issuer).netloc
        """The authorization server, as people see it."""
        self._settings = settings
        self._issuer = issuer
        self._clock = clock
        self._redirect_uri = settings.resource + REDIRECT_PATH
        self._metadata: dict[str, Any] = {}
        self._fetched_at = 0.0

    @classmethod
    def of(cls, settings: OAuthSettings, egress: Egress) -> Self:
        """Returns the sign-in for settings that name an issuer and a client id.

        Raises:
            SetupError: an address in them is not a web URL.
        """
        return cls(settings, Issuer(settings, egress))

    async def authorization_url(self) -> tuple[str, PendingSignIn]:
        """Returns the address at which the authorization server signs the person in, and what the browser must store.

        Raises:
            Unavailable: the authorization server does not answer, or does not support this.
        """
        pending = PendingSignIn(secrets.token_urlsafe(32), secrets.token_urlsafe(32))
        metadata = await self._current_metadata()
        methods = metadata.get("code_challenge_methods_supported", ["S256"])
        if not isinstance(methods, list) or "S256" not in methods:
            raise self._unavailable("it does not support PKCE with S256")
        parameters = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._redirect_uri,
            "scope": " ".join(self._settings.scopes),
            "state": pending.state,
            "code_challenge": _challenge(pending.verifier),
            "code_challenge_method": "S256",
            "resource": self._settings.resource,
        }
        parts = urlsplit(self._endpoint(metadata, "authorization_endpoint"))
        query = "&".join(filter(None, (parts.query, urlencode(parameters))))
        return urlunsplit(parts._replace(query=query, fragment="")), pending

    async def fetch_token(self, pending: PendingSignIn, answer: Mapping[str, str]) -> str:
        """Returns the access token for the answer with which the authorization server sent the browser back. The token
        is not verified yet.

        Raises:
            Unauthenticated: the answer is not to this sign-in, or the authorization server refuses; the message
                states why.
            Unavailable: the authorization server does not answer.
        """
        if not hmac.compare_digest(answer.get("state", "").encode(), pending.state.encode()):
            raise sign_in_refused("The answer belongs to another sign-in (state).")
        metadata = await self._current_metadata()
        issuer = answer.get("iss")
        requires_issuer = metadata.get("authorization_response_iss_parameter_supported") is True
        if issuer != self._settings.issuer and (issuer is not None or requires_issuer):
            raise sign_in_refused("The answer is of another authorization server (iss).")
        if "error" in answer:
            raise sign_in_refused(self._refusal(answer))
        if not answer.get("code"):
            raise sign_in_refused("The answer of the authorization server holds no code.")
        return self._access_token(await self._redeem(metadata, answer["code"], pending.verifier))

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._issuer.close()

    async def _redeem(self, metadata: Mapping[str, Any], code: str, verifier: str) -> dict[str, Any]:
        """Returns the answer of the token endpoint to a code."""
        client, secret = self._settings.client_id, self._settings.client_secret.get_secret_value()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect_uri,
            "code_verifier": verifier,
            "resource": self._settings.resource,
        }
        basic = None
        if not secret:
            form["client_id"] = client
        elif _takes_basic(metadata):
            basic = (quote_plus(client), quote_plus(secret))
        else:
            form |= {"client_id": client, "client_secret": secret}
        try:
            return await self._issuer.token(self._endpoint(metadata, "token_endpoint"), form, client=basic)
        except NotFetched as error:
            raise self._unavailable(str(error)) from None

    def _access_token(self, answer: Mapping[str, Any]) -> str:
        if "error" in answer:
            hint = "Check oauth.client_id and oauth.client_secret." if answer["error"] == "invalid_client" else None
            raise sign_in_refused(self._refusal(answer), hint=hint)
        token, kind = answer.get("access_token"), answer.get("token_type")
        if not isinstance(token, str) or not token or not isinstance(kind, str) or kind.lower() != "bearer":
            raise sign_in_refused("The answer of the authorization server holds no access token of the type Bearer.")
        return token

    def _refusal(self, answer: Mapping[str, Any]) -> str:
        words = [str(answer[name])[:_MAX_WORDS] for name in ("error", "error_description") if answer.get(name)]
        return f"{self.host} refused the sign-in: {': '.join(words)}"

    async def _current_metadata(self) -> dict[str, Any]:
        if not self._metadata or self._clock() - self._fetched_at >= METADATA_SECONDS:
            try:
                self._metadata = await self._issuer.metadata()
            except NotFetched as error:
                raise self._unavailable(str(error)) from None
            self._fetched_at = self._clock()
        return self._metadata

    def _endpoint(self, metadata: Mapping[str, Any], name: str) -> str:
        try:
            return self._issuer.endpoint(metadata, name)
        except NotFetched as error:
            raise self._unavailable(str(error)) from None

    def _unavailable(self, why: str) -> Unavailable:
        return Unavailable(
            f"Signing in with {self.host} is not possible now: {why}", code="authorization_server_unavailable"
        )


def sign_in_refused(words: str, *, hint: str | None = None) -> Unauthenticated:
    """Returns the error for a sign-in that did not succeed."""
    return Unauthenticated(words, code="sign_in_refused", hint=hint)


def _challenge(verifier: str) -> str:
    """Returns the S256 challenge of RFC 7636."""
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _takes_basic(metadata: Mapping[str, Any]) -> bool:
    """Returns True if clients authenticate with HTTP Basic, which is the default of RFC 8414."""
    methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    return not isinstance(methods, list) or "client_secret_basic" in methods
