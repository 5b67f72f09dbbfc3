"""API keys: creates, lists, rotates, revokes and looks them up. Only administrators may manage keys.

A key is `om_`, eight characters that identify it, `_` and 256 random bits. It is shown once; PostgreSQL stores only its
SHA-256. A plain hash suffices because the key cannot be guessed: slow hashes are for passwords, which people choose.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Text, Uuid, bindparam, exists, func, or_, select, text, type_coerce, update
from sqlalchemy.dialects.postgresql import ARRAY, insert

from openmemory.access.directory import Directory
from openmemory.access.models import ApiKey, User
from openmemory.access.schemas import Key, KeyCreate, KeyCreated
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Database, Tx
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid, NotFound, Unavailable
from openmemory.identity.principal import Principal, Scope

CACHE_SECONDS = 5.0
"""Seconds that a valid key is cached. Another process may therefore accept a revoked key for that long."""

MAX_LIFETIME = timedelta(days=3650)

_ALPHABET = string.ascii_lowercase + string.digits
_KEY = re.compile(r"om_([a-z0-9]{8})_[A-Za-z0-9_-]{43}")
_MAX_CACHED_KEYS = 10_000
"""The maximum number of cached keys."""

_LIKE_CREDENTIAL = re.compile(
    r"om_[a-z0-9]{8}_[\w-]{20}|local_[\w-]{40}|(?<![\w-])(?>[\w-]*?eyJ)[\w-]++\.[\w-]++\.", re.ASCII
)


def resembles_credential(text: str) -> bool:
    """Returns True if a text appears to contain an API key, the key of a data folder, or a token."""
    return _LIKE_CREDENTIAL.search(text) is not None


@dataclass(frozen=True, slots=True)
class _CachedKey:
    """The result of a key lookup, and the time of the lookup."""

    id: UUID
    principal: Principal
    expires_at: datetime | None
    at: float


class ApiKeys:
    """The API keys of one service."""

    def __init__(self, database: Database, directory: Directory) -> None:
        self._database = database
        self._directory = directory
        self._cache: dict[bytes, _CachedKey] = {}
        self._last_uses: dict[UUID, datetime] = {}
        self._end_count = 0
        """The number of times keys were ended here. A lookup that began before is not cached afterwards."""

    @retry_on_conflict
    async def create(self, principal: Principal, new: KeyCreate) -> KeyCreated:
        """Create a key. Also creates its user and app if they are new, unless the key is read-only. A credential with
        bounds makes only keys that reach and may do no more than itself.

        Raises:
            Forbidden: the principal is not an administrator, or the key would exceed its bounds.
            Invalid: it does not state its owner, or it expires in the past.
        """
        principal.must(Scope.ADMIN)
        principal.must_cover(new.user_id, new.app, new.namespaces)
        _must_have(principal, new.scopes)
        if (new.user_id is None) == (not new.everyone):
            raise Invalid("user_id", "must be given, or `everyone` must be true; not both")
        if new.expires_at is not None:
            _check_end(new.expires_at)
        user_id = None if new.user_id is None else (await self._directory.caller(new.user_id, new.app)).user_id
        row = {
            "name": new.name,
            "user_id": user_id,
            "app": new.app,
            "namespaces": new.namespaces,
            "scopes": sorted(set(new.scopes)),
            "expires_at": new.expires_at,
            "created_by": principal.name,
        }
        async with self._database.transaction() as tx:
            key = await self._insert(tx, row)
            detail = {"prefix": key.prefix, "name": key.name, "scopes": key.scopes}
            await audit_log.record(tx, principal, AuditAction.KEY_CREATE, [key.id], user_id=user_id, detail=detail)
        return key

    async def list(self, principal: Principal, *, user: str | None = None, ended: bool = False) -> list[Key]:
        """Returns the keys within the principal's bounds, newest first, of one user or of all. `ended` includes revoked
        and expired keys.

        Raises:
            Forbidden: the principal is not an administrator.
        """
        principal.must(Scope.ADMIN)
        query = _keys().where(*_within(principal)).order_by(ApiKey.created_at.desc(), ApiKey.id)
        if user is not None:
            query = query.where(User.user_id == user)
        if not ended:
            query = query.where(*_in_force())
        async with self._database.transaction() as tx:
            keys = [Key.model_validate(row) for row in await tx.execute(query)]
            await audit_log.record(tx, principal, AuditAction.KEY_LIST)
        return keys

    @retry_on_conflict
    async def revoke(self, principal: Principal, key_id: UUID) -> None:
        """Revoke a key. It takes effect at once in this process, and within five seconds in the others.

        Raises:
            Forbidden: the principal is not an administrator.
            NotFound: there is no active key with this id within the principal's bounds.
        """
        principal.must(Scope.ADMIN)
        async with self._database.transaction() as tx:
            await self._end(tx, principal, key_id, after=timedelta())
            await audit_log.record(tx, principal, AuditAction.KEY_REVOKE, [key_id])
        self._forget(lambda entry: entry.id == key_id)

    @retry_on_conflict
    async def rotate(self, principal: Principal, key_id: UUID, *, keep: int = 0) -> KeyCreated:
        """Create another key with the same rights; the old one expires after `keep` seconds.

        Raises:
            Forbidden: the principal is not an administrator, or has bounds and lacks a scope of the key.
            NotFound: there is no active key with this id within the principal's bounds.
        """
        principal.must(Scope.ADMIN)
        async with self._database.transaction() as tx:
            row = await self._end(tx, principal, key_id, after=timedelta(seconds=keep))
            _must_have(principal, row["scopes"])
            key = await self._insert(tx, row | {"created_by": principal.name})
            detail = {"from": str(key_id), "prefix": key.prefix}
            await audit_log.record(
                tx, principal, AuditAction.KEY_ROTATE, [key_id, key.id], user_id=row["user_id"], detail=detail
            )
        self._forget(lambda entry: entry.id == key_id)
        return key

    def forget_user(self, user: str) -> None:
        """Drop the cached keys of an erased user. The keys themselves were erased with the user."""
        self._forget(lambda entry: entry.principal.user == user)

    def _forget(self, which: Callable[[_CachedKey], bool]) -> None:
        self._end_count += 1
        self._cache = {digest: entry for digest, entry in self._cache.items() if not which(entry)}

    async def exist(self) -> bool:
        """Returns True if any key is active."""
        async with self._database.statement() as tx:
            return bool(await tx.scalar(select(exists().where(*_in_force()))))

    def from_cache(self, key: str) -> Principal | None:
        """Returns the principal of a key that was recently found valid, from the cache."""
        digest = _digest(key)
        entry = self._cache.get(digest)
        if entry is None or time.monotonic() - entry.at > CACHE_SECONDS:
            return None
        self._last_uses[entry.id] = datetime.now(UTC)
        return self._cached_principal(digest)

    async def find(self, key: str, *, outage: bool = False) -> Principal | None:
        """Returns the principal of a key; None if it is unknown, expired or revoked. With `outage`, the last known
        principal is returned if PostgreSQL is down.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        match = _KEY.fullmatch(key)
        if match is None:
            return None
        digest, end_count = _digest(key), self._end_count
        try:
            async with self._database.statement() as tx:
                row = (await tx.execute(_FIND, {"prefix": _public_prefix(match[1])})).one_or_none()
        except Unavailable:
            # The cached key may have been revoked elsewhere, and PostgreSQL may be back soon. It is good enough for the
            # metrics, which report the outage, but not for anybody's data.
            if not outage or (principal := self._cached_principal(digest)) is None:
                raise
            return principal
        # Always compared, and in constant time, so that the duration does not reveal where the two differ.
        same = hmac.compare_digest(bytes(32) if row is None else row.hash, digest)
        if row is None or not same or not row.in_force:
            return None
        principal = Principal(
            id=f"key:{row.id}",
            name=f"{row.prefix} ({row.name})",
            user=row.user,
            app=row.app,
            namespaces=None if row.namespaces is None else tuple(row.namespaces),
            scopes=frozenset(Scope(scope) for scope in row.scopes),
        )
        if len(self._cache) >= _MAX_CACHED_KEYS:
            self._cache.clear()
        if end_count == self._end_count:
            self._cache[digest] = _CachedKey(row.id, principal, row.expires_at, time.monotonic())
        self._last_uses[row.id] = datetime.now(UTC)
        return principal

    def _cached_principal(self, digest: bytes) -> Principal | None:
        entry = self._cache.get(digest)
        if entry is None or (entry.expires_at is not None and entry.expires_at <= datetime.now(UTC)):
            return None
        return entry.principal

    async def in_force(self, key_id: UUID) -> bool:
        """Returns True if a key that opened a session is still valid."""
        now = time.monotonic()
        if any(entry.id == key_id and now - entry.at <= CACHE_SECONDS for entry in self._cache.values()):
            return True
        async with self._database.statement() as tx:
            return bool(await tx.scalar(select(exists().where(ApiKey.id == key_id, *_in_force()))))

    async def ended(self, key_ids: Collection[UUID]) -> set[UUID]:
        """Returns those of the keys that are no longer valid."""
        if not key_ids:
            return set()
        active = select(ApiKey.id).where(ApiKey.id == func.any(list(key_ids)), *_in_force())
        async with self._database.statement() as tx:
            return set(key_ids) - set(await tx.scalars(active))

    async def note_use(self) -> None:
        """Store when the keys were last used. A job calls this."""
        uses, self._last_uses = self._last_uses, {}
        if not uses:
            return
        values = {"ids": list(uses), "seconds": [round(moment.timestamp()) for moment in uses.values()]}
        try:
            async with self._database.statement() as tx:
                await tx.execute(_NOTE_USE, values)
        except BaseException:
            self._last_uses = uses | self._last_uses
            raise

    async def _insert(self, tx: Tx, row: dict[str, Any]) -> KeyCreated:
        while True:
            name = "".join(secrets.choice(_ALPHABET) for _ in range(8))
            key = f"{_public_prefix(name)}_{secrets.token_urlsafe(32)}"
            statement = insert(ApiKey).values(row | {"prefix": _public_prefix(name), "hash": _digest(key)})
            id_ = await tx.scalar(statement.on_conflict_do_nothing(index_elements=["prefix"]).returning(ApiKey.id))
            if id_ is not None:
                stored_row = (await tx.execute(_keys().where(ApiKey.id == id_))).one()
                return KeyCreated(key=key, **Key.model_validate(stored_row).model_dump())

    async def _end(self, tx: Tx, principal: Principal, key_id: UUID, *, after: timedelta) -> dict[str, Any]:
        columns = (
            ApiKey.name, ApiKey.user_id, ApiKey.app, ApiKey.namespaces, ApiKey.scopes, ApiKey.expires_at,
        )  # fmt: skip
        end = {"revoked_at": func.now()} if not after else {
            "expires_at": func.least(ApiKey.expires_at, func.now() + after)
        }  # fmt: skip
        active = select(*columns).where(ApiKey.id == key_id, *_within(principal), *_in_force())
        before = (await tx.execute(active.with_for_update())).one_or_none()
        if before is None:
            raise NotFound("Key not found", code="key_not_found", hint="`openmemory keys list` shows the valid keys.")
        await tx.execute(update(ApiKey).where(ApiKey.id == key_id).values(end))
        return dict(before._mapping)


_FIND = text("""
SELECT k.id, k.prefix, k.hash, k.name, u.user_id AS user, k.app, k.namespaces, k.scopes, k.expires_at,
       k.revoked_at IS NULL AND coalesce(k.expires_at > now(), true) AS in_force
FROM api_keys k LEFT JOIN users u ON u.id = k.user_id WHERE k.prefix = :prefix
""")

_NOTE_USE = text("""
UPDATE api_keys k SET last_used_at = greatest(k.last_used_at, to_timestamp(used.seconds))
FROM unnest(:ids, :seconds) AS used(id, seconds) WHERE k.id = used.id
""").bindparams(bindparam("ids", type_=ARRAY(Uuid)), bindparam("seconds", type_=ARRAY(BigInteger)))


def _keys() -> Any:
    return select(
        ApiKey.id, ApiKey.prefix, ApiKey.name, User.user_id.label("user_id"), ApiKey.app, ApiKey.namespaces,
        ApiKey.scopes, ApiKey.created_at, ApiKey.created_by, ApiKey.expires_at, ApiKey.revoked_at, ApiKey.last_used_at,
    ).outerjoin(User, User.id == ApiKey.user_id)  # fmt: skip


def _in_force() -> Sequence[Any]:
    return (ApiKey.revoked_at.is_(None), or_(ApiKey.expires_at.is_(None), ApiKey.expires_at > func.now()))


def _within(principal: Principal) -> Sequence[Any]:
    """The keys that reach no further than the principal: `Principal.must_cover`, as conditions."""
    if not principal.bounded:
        return ()
    bounds = []
    if principal.user is not None:
        whose = select(User.id).where(User.user_id == principal.user).scalar_subquery()
        bounds.append(ApiKey.user_id == whose)
    if principal.app is not None:
        bounds.append(ApiKey.app == principal.app)
    if principal.namespaces is not None:
        bounds.append(type_coerce(ApiKey.namespaces, ARRAY(Text)).contained_by(list(principal.namespaces)))
    return bounds


def _must_have(principal: Principal, scopes: Sequence[str]) -> None:
    """Require that a principal with bounds has the scopes of a key that it makes."""
    if principal.bounded:
        for scope in sorted(scopes):
            principal.must(Scope(scope))


def _public_prefix(name: str) -> str:
    return f"om_{name}"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _check_end(moment: datetime) -> None:
    if moment.tzinfo is None:
        raise Invalid("expires_at", "must have a UTC offset, such as 2027-01-31T12:00:00Z")
    now = datetime.now(UTC)
    if not now < moment <= now + MAX_LIFETIME:
        raise Invalid("expires_at", "must be in the future, at most ten years from now")
