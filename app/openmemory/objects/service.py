"""Stores the originals of documents, encrypted with a key for each user, and deletes those that nothing refers to.

An object is written before the row that refers to it. Until then, and again after the row is gone, the object is noted
in `object_deletions`, and `sweep` deletes it when its time has come.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any, BinaryIO
from uuid import UUID, uuid4

from sqlalchemy import delete, exc, select, text
from sqlalchemy.dialects.postgresql import insert as pg_insert

from openmemory.database.engine import Database, Tx, violated
from openmemory.errors import NotFound, Unavailable
from openmemory.objects import encryption
from openmemory.objects.models import ObjectDeletion, ObjectKey
from openmemory.objects.stores import ObjectStore

log = logging.getLogger(__name__)

PENDING = 3600
"""The seconds in which a row must refer to a new object. Then the object is deleted."""

_DUE = text(
    """
    SELECT d.object_key, EXISTS (SELECT FROM sources AS s WHERE s.object_key = d.object_key) AS used
    FROM object_deletions AS d WHERE d.due_at <= now() ORDER BY d.due_at LIMIT 1 FOR UPDATE OF d SKIP LOCKED
    """
)
_PENDING = text(
    f"INSERT INTO object_deletions (object_key, due_at) VALUES (:key, now() + interval '{PENDING} s')"  # noqa: S608
)


class Objects:
    """The originals of documents."""

    def __init__(self, database: Database, store: ObjectStore, service_key: Callable[[], bytes]) -> None:
        self._database = database
        self._store = store
        self._service_key = service_key
        self._probe = f"check-{uuid4()}/object"

    async def put(self, user: UUID, content: BinaryIO) -> str:
        """Store an object of a user. Returns its key. It is deleted after a while unless `keep` follows.

        Raises:
            Unavailable: the store does not answer, or is full.
        """
        key = f"{user}/{uuid4()}"
        async with self._database.transaction() as tx:
            user_key = await self._user_key(tx, user)
            await tx.execute(_PENDING, {"key": key})
        content.seek(0)
        await self._store.put(key, encryption.sealed(user_key, key, content))
        return key

    @staticmethod
    async def keep(tx: Tx, key: str) -> None:
        """Keep a new object, in the transaction that writes the row which refers to it.

        Raises:
            Unavailable: it has been deleted, because this came too late.
        """
        deletion = delete(ObjectDeletion).where(ObjectDeletion.object_key == key).returning(ObjectDeletion.object_key)
        if (await tx.execute(deletion)).one_or_none() is None:
            raise Unavailable(
                "The store of documents took too long. Send the document again.", code="objects_unavailable"
            )

    async def get(self, user: UUID, key: str) -> AsyncIterator[bytes]:
        """The content of an object. The first chunk is read before this returns, so that most failures come here.

        Raises:
            NotFound: there is no such object.
            ObjectDamaged: it is not what was stored.
            Unavailable: the store does not answer.
        """
        async with self._database.transaction() as tx:
            user_key = await self._user_key(tx, user)
        chunks = encryption.opened(user_key, key, self._store.get(key))
        first = await anext(chunks)

        async def all_of_them() -> AsyncIterator[bytes]:
            yield first
            async for chunk in chunks:
                yield chunk

        return all_of_them()

    async def check(self) -> dict[str, Any]:
        """Stores and deletes a small object that is nobody's.

        Raises:
            Unavailable: the store does not answer, is full, or cannot be written.
        """
        await self._store.put(self._probe, iter([b"openmemory"]))
        await self._store.delete(self._probe)
        return {}

    async def _user_key(self, tx: Tx, user: UUID) -> bytes:
        """The key of a user, made at its first use."""
        service_key = await asyncio.to_thread(self._service_key)
        stored = select(ObjectKey.wrapped).where(ObjectKey.user_id == user)
        if (wrapped := await tx.scalar(stored)) is None:
            fresh = encryption.wrap(service_key, secrets.token_bytes(encryption.KEY_BYTES), user.bytes)
            made = pg_insert(ObjectKey).values(user_id=user, wrapped=fresh).on_conflict_do_nothing()
            try:
                await tx.execute(made)
            except exc.IntegrityError as error:
                if violated(error).startswith("fk_"):
                    raise NotFound("The user was erased a moment ago.", code="user_not_found") from error
                raise
            wrapped = (await tx.execute(stored)).scalar_one()
        return encryption.unwrap(service_key, wrapped, user.bytes)

    async def sweep(self) -> int:
        """Delete the objects that nothing refers to. Returns their number.

        Raises:
            Unavailable: PostgreSQL or the store does not answer.
        """
        gone = 0
        while (deleted := await self._sweep_one()) is not None:
            gone += deleted
        return gone

    async def _sweep_one(self) -> bool | None:
        """Delete one object that is due. Returns False if it is in use after all, and None if none is due."""
        async with self._database.transaction() as tx:
            due = (await tx.execute(_DUE)).one_or_none()
            if due is None:
                return None
            # The row stays locked meanwhile, so that nobody can begin to keep the object.
            if not due.used:
                await self._store.delete(due.object_key)
            await tx.execute(delete(ObjectDeletion).where(ObjectDeletion.object_key == due.object_key))
        return not due.used
