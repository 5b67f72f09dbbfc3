"""Idempotency keys: a request that a client repeats with the same key, because it got no answer, is done once.

Follows draft-ietf-httpapi-idempotency-key-header. The key is claimed in the transaction that does the work. A failed
request therefore leaves the key free, and of two concurrent requests the second waits for the first.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Literal, Self
from uuid import UUID

from sqlalchemy import delete, exc, func, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.config.settings import LimitSettings
from openmemory.database.engine import Database, Tx
from openmemory.errors import Invalid, NotFound, WriteConflict
from openmemory.identity.caller import Caller
from openmemory.memories import validation
from openmemory.memories.models import IdempotencyKey

RETENTION_DAYS = 7
"""The days for which a key is stored."""

_BATCH = 5_000
"""The number of keys that one statement deletes."""

_KEY = (IdempotencyKey.app_id, IdempotencyKey.principal, IdempotencyKey.key)


Kind = Literal["memory", "capture"]
"""The kind of object that a request makes."""


@dataclass(frozen=True, slots=True)
class IdempotentRequest:
    """The idempotency key that the client chose for a request, and the request."""

    key: str
    request: str = field(repr=False)

    @classmethod
    def of(cls, key: str, request: str, limits: LimitSettings) -> Self:
        """Builds it from the header `Idempotency-Key` and the request.

        Raises:
            Invalid: the key is not valid.
        """
        return cls(validation.name(key, "Idempotency-Key", limits), request)

    def fingerprint(self, kind: Kind) -> str:
        """Returns a hash of the request and of what it makes, so that one key never answers for both kinds."""
        return hashlib.sha256(f"{kind} {self.request}".encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result stored under a key: a memory with its answer, or a capture."""

    memory_id: UUID | None
    capture_id: UUID | None
    answer: dict[str, Any]


async def claim(tx: Tx, caller: Caller, once: IdempotentRequest, kind: Kind) -> StoredResult | None:
    """Claim the key for this transaction. Returns the result that is already stored under it, or None.

    Keys are scoped to an app and a credential. While another transaction holds the key, this one waits.

    Raises:
        Invalid: the key was used for another request.
        NotFound: the app was erased meanwhile.
        WriteConflict: the key was deleted at the same moment.
    """
    mine = (caller.app_id, caller.principal.id, once.key)
    fingerprint = once.fingerprint(kind)
    values = dict(zip(("app_id", "principal", "key"), mine, strict=True)) | {"fingerprint": fingerprint}
    statement = pg_insert(IdempotencyKey).values(values).on_conflict_do_nothing().returning(IdempotencyKey.key)
    try:
        if (await tx.execute(statement)).one_or_none() is not None:
            return None
    except exc.IntegrityError:
        raise NotFound("The user or the app was erased a moment ago", code="user_not_found") from None
    columns = (IdempotencyKey.fingerprint, IdempotencyKey.memory_id, IdempotencyKey.capture_id, IdempotencyKey.answer)
    row = (await tx.execute(select(*columns).where(tuple_(*_KEY) == mine))).one_or_none()
    if row is None:
        raise WriteConflict("The Idempotency-Key was forgotten at this moment, and nothing was written. Send it again.")
    if row.fingerprint != fingerprint:
        raise Invalid(
            "Idempotency-Key",
            "was sent with another request before",
            code="idempotency_key_reused",
            hint="Choose a new key for every request, and repeat it only with the same body.",
        )
    return StoredResult(row.memory_id, row.capture_id, row.answer)


async def store(
    tx: Tx,
    caller: Caller,
    once: IdempotentRequest,
    *,
    memory_id: UUID | None = None,
    capture_id: UUID | None = None,
    answer: dict[str, Any] | None = None,
) -> None:
    """Store the result under a key that this transaction has claimed. Erasing the memory or capture deletes it too."""
    mine = (caller.app_id, caller.principal.id, once.key)
    values = {"memory_id": memory_id, "capture_id": capture_id, "answer": answer or {}}
    await tx.execute(update(IdempotencyKey).where(tuple_(*_KEY) == mine).values(values))


async def prune(database: Database) -> None:
    """Delete expired keys, some thousands at a time."""
    old = IdempotencyKey.created_at < func.now() - func.make_interval(0, 0, 0, RETENTION_DAYS)
    some = delete(IdempotencyKey).where(tuple_(*_KEY).in_(select(*_KEY).where(old).limit(_BATCH)))
    async with database.statement() as tx:
        while (await tx.execute(some)).rowcount == _BATCH:
            continue
