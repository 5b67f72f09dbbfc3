"""Validates the claims of access tokens (user, client, scopes, expiry), and makes a principal of them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from openmemory.config.sections import OAuthSettings
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid, Unauthenticated
from openmemory.identity.names import checked_name
from openmemory.identity.principal import Principal, Scope

_DOORS = ("/mcp", "/api")
"""Our paths under the resource: a client may request a token for the exact address that it calls."""

_LAST_TIME = 253_402_300_799
"""The last second of the year 9999."""


class ClaimsValidator:
    """Checks the claims of a token with a valid signature against the settings."""

    def __init__(self, settings: OAuthSettings, limits: LimitSettings) -> None:
        self._settings = settings
        self._longest = limits.name

    def check_issuer(self, claims: Mapping[str, Any]) -> None:
        """Reject a token of another issuer before its keys are fetched.

        Raises:
            Unauthenticated: the issuer is another one.
        """
        if claims.get("iss") != self._settings.issuer:
            raise refused("iss: the token is of another issuer")

    def principal(self, claims: Mapping[str, Any], now: float) -> Principal:
        """Returns the principal that valid claims name. A client that acts as the user themself is bound to no app.

        Raises:
            Unauthenticated: a claim is missing or wrong; the message names it.
        """
        self.check_issuer(claims)
        self._check_audience(claims.get("aud"))
        expires = self._check_times(claims, now)
        settings = self._settings
        subject = self._name(claims, "sub")
        user = self._name(claims, settings.user_claim)
        if settings.user_claim == "email" and claims.get("email_verified") not in (True, "true"):
            raise refused("email: the issuer has not verified it")
        client = self._name(claims, settings.app_claim if settings.app_claim in claims else "azp")
        scopes = self._scopes(claims, user)
        return Principal(
            id=f"token:{settings.issuer} {subject} {client}",
            name=f"token of {client}",
            user=user,
            app=None if client in (settings.client_id, *settings.owner_clients) else client,
            scopes=scopes,
            ends=expires + settings.leeway,
            administrator=Scope.ADMIN in scopes,
        )

    def _check_audience(self, audience: Any) -> None:
        audiences = [audience] if isinstance(audience, str) else audience
        if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
            raise refused("aud: must be a string or a list of strings")
        if not any(self._is_us(one) for one in audiences):
            raise refused("aud: the token is for another service", hint="Ask for it with the resource of this service.")

    def _is_us(self, audience: str) -> bool:
        if self._settings.audience:
            return audience in self._settings.audience
        base, own = self._settings.resource, audience.rstrip("/")
        return own == base or any(own == base + door or own.startswith(f"{base}{door}/") for door in _DOORS)

    def _check_times(self, claims: Mapping[str, Any], now: float) -> float:
        if "exp" not in claims:
            raise refused("exp: is missing")
        expires = _time(claims, "exp")
        if now >= expires + self._settings.leeway:
            raise refused("exp: the token has expired")
        for claim in ("nbf", "iat"):
            if claim in claims and _time(claims, claim) > now + self._settings.leeway:
                raise refused(f"{claim}: the token is not valid yet")
        return expires

    def _name(self, claims: Mapping[str, Any], claim: str) -> str:
        value = claims.get(claim)
        if not isinstance(value, str) or not value.strip():
            hint = None
            if claim == "azp":
                hint = f"The token names no client; oauth.app_claim ({self._settings.app_claim}) may be another claim."
            raise refused(f"{claim}: must be a string that is not blank", hint=hint)
        try:
            return checked_name(value, claim, self._longest)
        except Invalid as error:
            raise refused(error.message) from None

    def _scopes(self, claims: Mapping[str, Any], user: str) -> frozenset[Scope]:
        """Returns the valid scopes. Entra and Okta name the claim `scp`; only administrators keep `admin`."""
        value = claims.get("scope", claims.get("scp", ""))
        names = value.split() if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise refused("scope: must be a string of scopes separated by spaces")
        prefix = self._settings.scope_prefix
        own_names = {one.removeprefix(prefix) for one in names if one.startswith(prefix)}
        scopes = frozenset(scope for scope in Scope if scope in own_names)
        return scopes if user in self._settings.admins else scopes - {Scope.ADMIN}


def refused(what: str, *, hint: str | None = None) -> Unauthenticated:
    """Returns the error for a rejected token."""
    return Unauthenticated(f"The access token is not valid: {what}", code="invalid_token", hint=hint)


def _time(claims: Mapping[str, Any], claim: str) -> float:
    value = claims[claim]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LAST_TIME:
        raise refused(f"{claim}: must be a time in seconds since 1970")
    return value
