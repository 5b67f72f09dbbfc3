"""The keys of the authorization server: cached, and refreshed at a limited rate."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import InvalidKeyError
from jwt.algorithms import Algorithm, get_default_algorithms

from openmemory.access.oauth.issuer import Issuer, NotFetched
from openmemory.config.sections import ASYMMETRIC
from openmemory.errors import Unavailable

log = logging.getLogger(__name__)

REFRESH_AFTER = 600.0
"""Seconds after which keys are fetched again."""
USABLE_FOR = 86_400.0
"""Seconds for which old keys are used while new ones cannot be fetched."""
PAUSE = 10.0
"""The minimum number of seconds between two fetches, however many tokens name unknown keys."""

MAX_KEYS = 100
MIN_RSA_BITS = 2048

_ALGORITHMS: Mapping[str, Algorithm] = get_default_algorithms()
_CURVES = {"ES256": ("P-256",), "ES384": ("P-384",), "ES512": ("P-521",), "EdDSA": ("Ed25519", "Ed448")}
_TYPES = {name: {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}[name[:2]] for name in ASYMMETRIC}


class _UnusableKey(ValueError):
    """A published key that cannot verify a signature here."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One public key, and the algorithms that it may be used with."""

    id: str | None
    public: Any
    algorithms: frozenset[str]

    def signed(self, algorithm: str, content: bytes, signature: bytes) -> bool:
        """Returns True if this key made the signature. `algorithm` is one of `algorithms`."""
        return _ALGORITHMS[algorithm].verify(content, self.public, signature)


class PublicKeys:
    """The keys of one issuer. `clock` counts seconds from any starting point."""

    def __init__(self, issuer: Issuer, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._clock = clock
        self._keys: Sequence[PublicKey] | None = None
        self._fetched_at = 0.0
        self._last_attempt: float | None = None
        self._failure = ""
        self._fetching: asyncio.Task[None] | None = None
        self.generation = 0
        """Changes whenever the keys change. Results obtained with the old keys are then invalid."""

    async def fitting(self, id_: str | None, algorithm: str) -> list[PublicKey]:
        """Returns the keys that may have signed a token with this header; empty if the issuer has no such key.

        Raises:
            Unavailable: the keys cannot be fetched and none are cached.
        """
        await self._renew_old()
        keys = self._matching(id_, algorithm)
        if not keys and self._may_fetch():
            await self._refresh()
            keys = self._matching(id_, algorithm)
        if self._keys is None:
            raise Unavailable(
                f"The keys of the authorization server cannot be fetched: {self._failure}",
                retry_after=PAUSE,
                code="authorization_server_unavailable",
            )
        return keys

    async def close(self) -> None:
        """Stop fetching and close the connections."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])
        await self._issuer.close()

    def _matching(self, id_: str | None, algorithm: str) -> list[PublicKey]:
        return [key for key in self._keys or () if (id_ is None or key.id == id_) and algorithm in key.algorithms]

    async def _renew_old(self) -> None:
        """Refresh keys that are not fresh. While the server fails, callers do not wait for it."""
        if self._keys is None or self._clock() - self._fetched_at < REFRESH_AFTER:
            return
        if self._clock() - self._fetched_at > USABLE_FOR:
            self._keys = None
        elif self._may_fetch():
            if self._failure:
                self._begin()
            else:
                await self._refresh()

    def _may_fetch(self) -> bool:
        return self._fetching is not None or self._last_attempt is None or self._clock() - self._last_attempt >= PAUSE

    async def _refresh(self) -> None:
        """Fetch the keys, or wait for a fetch in progress. A cancelled caller does not cancel it for the others."""
        await asyncio.shield(self._begin())

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None:
            self._last_attempt = self._clock()
            self._fetching = asyncio.create_task(self._fetch(), name="fetch the keys of the authorization server")
        return self._fetching

    async def _fetch(self) -> None:
        try:
            keys = parse(await self._issuer.keys())
        except NotFetched as error:
            if str(error) != self._failure:
                log.warning("the keys of the authorization server cannot be fetched: %s", error)
            self._failure = str(error)
        else:
            self.generation += keys != self._keys
            self._keys, self._fetched_at, self._failure = keys, self._clock(), ""
        finally:
            self._fetching = None


def parse(document: Mapping[str, Any]) -> list[PublicKey]:
    """Returns the keys of a JSON Web Key Set that can verify signatures. Others are skipped, and the log states why.

    Raises:
        NotFetched: it is not such a set.
    """
    entries = document.get("keys")
    if not isinstance(entries, list) or len(entries) > MAX_KEYS:
        raise NotFetched(f"the response must be a JSON Web Key Set of at most {MAX_KEYS} keys")
    keys: list[PublicKey] = []
    for place, entry in enumerate(entries):
        try:
            keys.append(_key(entry))
        except _UnusableKey as error:
            log.warning("key %d of the authorization server is not used: %s", place, error)
    return keys


def _key(entry: Any) -> PublicKey:
    if not isinstance(entry, dict):
        raise _UnusableKey("it is no JSON object")
    id_ = entry.get("kid")
    if id_ is not None and not isinstance(id_, str):
        raise _UnusableKey("its kid is no string")
    if "d" in entry or entry.get("kty") == "oct":
        raise _UnusableKey("it is a secret, which was published")
    uses = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or not isinstance(uses, list) or "verify" not in uses:
        raise _UnusableKey("it is not for signatures")
    algorithms = frozenset(name for name in _TYPES if _fits(entry, name))
    if not algorithms:
        raise _UnusableKey("its kty, crv and alg fit no algorithm that is known here")
    try:
        public = _ALGORITHMS[min(algorithms)].from_jwk(entry)
    except (InvalidKeyError, ValueError, TypeError, KeyError) as error:
        raise _UnusableKey(f"it cannot be read ({type(error).__name__})") from None
    if isinstance(public, RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        raise _UnusableKey(f"RSA of {public.key_size} bits is too weak; at least {MIN_RSA_BITS:,} are needed")
    return PublicKey(id_, public, algorithms)


def _fits(entry: Mapping[str, Any], algorithm: str) -> bool:
    if entry.get("kty") != _TYPES[algorithm] or entry.get("alg", algorithm) != algorithm:
        return False
    return algorithm not in _CURVES or entry.get("crv") in _CURVES[algorithm]
