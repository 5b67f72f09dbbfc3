"""Sessions of browsers: what a browser keeps as its cookie is a random id, and no key.

A session leads to the credential that the browser signed in with, so it ends with that credential, however that ends.
PostgreSQL has the SHA-256 of the id, and the credential encrypted with the id: neither a cookie nor a dump of the
database holds a key.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import text

from openmemory.database.engine import Database
from openmemory.identity.principal import Principal

CACHE_SECONDS = 5.0
"""Seconds that a session is cached. Another process may therefore accept one that was signed out for that long."""

LASTING = timedelta(days=30)

_PREFIX = "oms_"
_LENGTH = len(_PREFIX) + 43
_MAX_CACHED = 10_000
_NONCE = 12


class _CachedSession(NamedTuple):
    """The credential of a session, and the time of the lookup."""

    credential: str
    at: float


class BrowserSessions:
    """Opens, finds and ends the sessions of browsers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._cache: dict[bytes, _CachedSession] = {}

    async def open(self, credential: str, principal: Principal, seconds: float) -> str:
        """Opens a session for a valid credential, and returns its id. It lasts for the seconds, at most 30 days."""
        id_ = _PREFIX + secrets.token_urlsafe(32)
        kind, _, key = principal.id.partition(":")
        nonce = secrets.token_bytes(_NONCE)
        values = {
            "hash": _hash(id_),
            "key": UUID(key) if kind == "key" else None,
            "credential": nonce + AESGCM(_secret(id_)).encrypt(nonce, credential.encode(), None),
            "seconds": min(seconds, LASTING.total_seconds()),
        }
        async with self._database.statement() as tx:
            await tx.execute(_OPEN, values)
        return id_

    async def credential(self, id_: str) -> str | None:
        """Returns the credential of a session; None if there is no such session, or it has ended.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not id_.startswith(_PREFIX) or len(id_) != _LENGTH:
            return None
        hash_, now = _hash(id_), time.monotonic()
        session = self._cache.get(hash_)
        if session is not None and now - session.at <= CACHE_SECONDS:
            return session.credential
        self._cache.pop(hash_, None)
        async with self._database.statement() as tx:
            ciphertext: bytes | None = await tx.scalar(_FIND, {"hash": hash_})
        if ciphertext is None:
            return None
        credential = AESGCM(_secret(id_)).decrypt(ciphertext[:_NONCE], ciphertext[_NONCE:], None).decode()
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[hash_] = _CachedSession(credential, now)
        return credential

    async def close(self, id_: str) -> None:
        """Ends a session, at once in this process and within five seconds in the others."""
        async with self._database.statement() as tx:
            await tx.execute(_CLOSE, {"hash": _hash(id_)})
        self._cache.pop(_hash(id_), None)

    async def prune(self) -> None:
        """Removes the sessions that have ended, by themselves or with their key."""
        async with self._database.statement() as tx:
            await tx.execute(_PRUNE)


def _hash(id_: str) -> bytes:
    return hashlib.sha256(b"id" + id_.encode("utf-8", "surrogatepass")).digest()


def _secret(id_: str) -> bytes:
    """The key that encrypts the credential. The id has 256 random bits, so a plain hash suffices."""
    return hashlib.sha256(b"secret" + id_.encode("utf-8", "surrogatepass")).digest()


_OPEN = text("""
INSERT INTO browser_sessions (hash, key_id, credential, expires_at)
VALUES (:hash, :key, :credential, now() + make_interval(secs => :seconds))
""")

_FIND = text("""
WITH seen AS (
    UPDATE browser_sessions SET last_seen_at = now()
    WHERE hash = :hash AND expires_at > now() AND last_seen_at < now() - interval '1 minute'
)
SELECT credential FROM browser_sessions WHERE hash = :hash AND expires_at > now()
""")

_CLOSE = text("DELETE FROM browser_sessions WHERE hash = :hash")

_PRUNE = text("""
DELETE FROM browser_sessions AS s WHERE s.expires_at < now()
    OR EXISTS (SELECT FROM api_keys AS k WHERE k.id = s.key_id AND (k.revoked_at < now() OR k.expires_at < now()))
""")
