"""Verifies the access tokens (JSON Web Tokens) of the configured authorization server."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from openmemory.access.oauth.claims import ClaimsValidator, refused
from openmemory.access.oauth.issuer import Issuer
from openmemory.access.oauth.jwks import PublicKeys
from openmemory.config.sections import OAuthSettings
from openmemory.config.settings import LimitSettings
from openmemory.egress.clients import Egress
from openmemory.identity.principal import Principal
from openmemory.serialization.exact_json import no_number

MAX_TOKEN_BYTES = 16_384
"""The largest accepted token in bytes."""
MAX_CACHED_TOKENS = 1_024
CACHE_SECONDS = 60.0
MAX_KEYS_TRIED = 4
"""The maximum number of keys to try for one signature, if the token or the keys have no id."""

SLOW = frozenset({"ES384", "ES512"})
"""Signatures that take a millisecond. They are verified in a thread; the others cost less than the switch to one."""

_TYPES = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")
_SEGMENT = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class _CachedToken:
    principal: Principal
    until: float
    generation: int


class Tokens:
    """Verifies access tokens. `now` is the time in seconds since 1970.

    Key locations in a token's header (`jku`, `x5u`, `jwk`, `x5c`) are ignored. A verified token is cached for a minute,
    unless the issuer's keys change.
    """

    def __init__(
        self, settings: OAuthSettings, limits: LimitSettings, keys: PublicKeys, *, now: Callable[[], float] = time.time
    ) -> None:
        self._algorithms = frozenset(settings.algorithms)
        self._rules = ClaimsValidator(settings, limits)
        self._keys = keys
        self._now = now
        self._cache: dict[bytes, _CachedToken] = {}

    @classmethod
    def of(cls, settings: OAuthSettings, limits: LimitSettings, egress: Egress) -> Self:
        """Returns a verifier for settings that name an issuer.

        Raises:
            SetupError: an address in them is not a web URL.
        """
        return cls(settings, limits, PublicKeys(Issuer(settings, egress)))

    async def verify(self, token: str) -> Principal:
        """Returns the principal of a valid token.

        Raises:
            Unauthenticated: it is not valid; the message states why, and never repeats the token.
            Unavailable: the keys to verify it cannot be fetched.
        """
        if (principal := self.from_cache(token)) is not None:
            return principal
        if len(token) > MAX_TOKEN_BYTES:
            raise refused(f"it is longer than {MAX_TOKEN_BYTES:,} bytes")
        digest, now = _digest(token), self._now()
        principal, generation = await self._verify(token, now)
        assert principal.ends is not None
        until = min(principal.ends, now + CACHE_SECONDS)
        self._cache.pop(digest, None)
        while len(self._cache) >= MAX_CACHED_TOKENS:
            del self._cache[next(iter(self._cache))]
        self._cache[digest] = _CachedToken(principal, until, generation)
        return principal

    def from_cache(self, token: str) -> Principal | None:
        """Returns the principal of a token that was verified within the last minute; None for others."""
        entry = self._cache.get(_digest(token)) if len(token) <= MAX_TOKEN_BYTES else None
        if entry is None or self._now() >= entry.until or entry.generation != self._keys.generation:
            return None
        return entry.principal

    async def close(self) -> None:
        """Close the connections to the authorization server."""
        await self._keys.close()

    async def _verify(self, token: str, now: float) -> tuple[Principal, int]:
        """Returns the principal of a token, and the generation of the keys that verified it."""
        segments = token.split(".")
        if len(segments) == 5:
            raise refused("it is encrypted (JWE); only signed tokens (JWS) are taken")
        if len(segments) != 3:
            raise refused("it is no JSON Web Token")
        algorithm, key_id = self._check_header(_object(segments[0], "header"))
        claims = _object(segments[1], "claims")
        signature = _decode(segments[2], "signature")
        self._rules.check_issuer(claims)
        keys = await self._keys.fitting(key_id, algorithm)
        generation = self._keys.generation
        if not keys:
            raise refused("it is signed with a key that the issuer does not publish")
        content = f"{segments[0]}.{segments[1]}".encode("ascii")

        def is_signed() -> bool:
            return any(key.signed(algorithm, content, signature) for key in keys[:MAX_KEYS_TRIED])

        if not (await asyncio.to_thread(is_signed) if algorithm in SLOW else is_signed()):
            raise refused("its signature is wrong")
        return self._rules.principal(claims, now), generation

    def _check_header(self, header: dict[str, Any]) -> tuple[str, str | None]:
        """Returns the algorithm of a valid header, and the id of its key."""
        algorithm, key, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise refused(f"alg: must be one of {', '.join(sorted(self._algorithms))}")
        if not isinstance(kind, str) or kind.lower() not in _TYPES:
            raise refused("typ: must be JWT or at+jwt")
        if "crit" in header:
            raise refused("crit: no extension is known here")
        if key is not None and not isinstance(key, str):
            raise refused("kid: must be a string")
        return algorithm, key


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _object(segment: str, what: str) -> dict[str, Any]:
    """Returns the JSON object of a segment. An object with a duplicate member is ambiguous and rejected."""
    try:
        value = json.loads(_decode(segment, what).decode("utf-8"), object_pairs_hook=_unique, parse_constant=no_number)
    except (ValueError, RecursionError):
        raise refused(f"its {what} cannot be read") from None
    if not isinstance(value, dict):
        raise refused(f"its {what} cannot be read")
    return value


def _decode(segment: str, what: str) -> bytes:
    if not _SEGMENT.fullmatch(segment) or len(segment) % 4 == 1:
        raise refused(f"its {what} cannot be read")
    return base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member is named twice")
    return members
