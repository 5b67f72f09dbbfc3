"""The index on a Qdrant server, over its REST API. This and `qdrant_format` are the only modules that import its
client."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from qdrant_client import AsyncQdrantClient, models

from openmemory.index.collections import (
    OWNER,
    RECONCILED,
    RESERVED,
    WATERMARK,
    check_query,
    check_vectors,
    entry_of,
    owner_of,
    owner_payload,
    points_of,
    readable_payload_of,
    reserved_vector,
    watermark_of,
    watermark_payload,
)
from openmemory.index.conditions import LABELS, TENANT
from openmemory.index.entries import IndexEntries
from openmemory.index.multi_vector import MORE, WORDS, best, chunks
from openmemory.index.port import (
    Accept,
    CollectionState,
    Connected,
    Filter,
    Hit,
    IndexStatus,
    IndexUnavailable,
    Owner,
    Point,
    SparseVector,
    Vector,
    Watermark,
    chunks_of,
)
from openmemory.index.qdrant_format import check_collection, configuration, cosines, filter_of, hits, sparse, vectors
from openmemory.index.unix_socket import unix_socket_transport

log = logging.getLogger(__name__)

CHUNK = 100
"""The number of vectors in one request: 1.2 MB of JSON at 1,536 dimensions, which the event loop writes in little
time."""

PATIENCE = 15.0
"""The maximum seconds for one write, one page of a listing or one schema change. No user waits for these."""

OWNER_EVERY = 1.0
"""The seconds after which a write first checks that the collection still belongs to this installation. It may have been
removed, and created again by another one."""

_POINTS = models.Filter(must_not=[models.HasIdCondition(has_id=[*RESERVED])])
"""All points that are memories or passages."""

_SAMPLE = 100
"""The number of points that are looked at in a collection that names neither owner nor watermark."""

_SCHEMAS: dict[str, models.PayloadSchemaParams] = {
    TENANT: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    LABELS: models.IntegerIndexParams(type=models.IntegerIndexType.INTEGER, lookup=True, range=False),
}


class QdrantIndex:
    """A `VectorIndex` in one collection of a server. An alias directs other readers to the collection in use.

    The product itself always uses the collection's own name, never the alias.

    `socket`: the unix socket on which the server listens, instead of `url`. `accept` decides whether the collection may
    be written; without it, it is anybody's. `on_connected` is called on the first
    connection and on the first one after a failure. `client` replaces the one that would be created from `url` and
    `api_key`; it is closed with the index.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str = "",
        collection: str,
        alias: str,
        dimension: int,
        timeout: float,
        socket: Path | None = None,
        client: AsyncQdrantClient | None = None,
        accept: Accept | None = None,
        on_connected: Connected | None = None,
    ) -> None:
        self._accept = accept
        self._on_connected = on_connected
        self._owner: Owner | None = None
        self._owner_read_at = 0.0
        self._alias = alias
        self._name = collection
        self._dimension = dimension
        self._timeout = timeout
        self._patience = max(timeout, PATIENCE)
        way: dict[str, Any] = {"transport": unix_socket_transport(socket)} if socket else {}
        self._client = client or AsyncQdrantClient(
            "http://index" if socket else url,
            # As a header, because the argument warns about plain http, which is normal in a private network.
            headers={"api-key": api_key} if api_key else None,
            # The deadlines below apply; the client's own timeout must not come first.
            timeout=math.ceil(self._patience) + 1,
            # It would query the server from a thread, and warn if the server is down.
            check_compatibility=False,
            **way,
        )
        self._ready = False
        self._closed = False
        self._warned = False
        self._opening = asyncio.Lock()
        self._calls = 0
        self._idle = asyncio.Event()

    async def open(self) -> None:
        """Creates what is missing. Raises if the server is down; the next call of any method tries again."""
        async with self._opening:
            if self._closed:
                raise IndexUnavailable("the index is closed")
            if not self._ready:
                await self._ensure()
                self._ready = True

    async def keeps_documents(self) -> bool:
        return True

    async def upsert(self, points: Sequence[Point]) -> None:
        check_vectors([point.vectors for point in points], self._dimension)
        for chunk in chunks(points, chunks_of, CHUNK):
            structs = [
                models.PointStruct(id=str(point.id), vector=vectors(point), payload=readable_payload_of(point))
                for point in chunk
            ]
            async with self._write(adds=True):
                await self._client.upsert(self._name, structs, wait=True)

    async def delete(self, ids: Sequence[UUID]) -> None:
        if ids:
            selected = models.PointIdsList(points=[id if isinstance(id, int) else str(id) for id in points_of(ids)])
            async with self._write():
                await self._client.delete(self._name, selected, wait=True)

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        check_query(vector, self._dimension)
        async with self._call(self._timeout):
            if limit < 1 or where.nothing:
                return []
            first = models.QueryRequest(query=vector.tolist(), filter=filter_of(where), limit=limit)
            # A multi-vector of one, as required for MaxSim.
            more = first.model_copy(update={"query": [vector.tolist()], "using": MORE})
            answers = await self._client.query_batch_points(self._name, [first, more])
            return best(cosines(answers[0]), cosines(answers[1]), limit)

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        async with self._call(self._timeout):
            if limit < 1 or where.nothing or not len(words.indices):
                return []
            request = models.QueryRequest(query=sparse(words), using=WORDS, filter=filter_of(where), limit=limit)
            [answer] = await self._client.query_batch_points(self._name, [request])
            return hits(answer)

    async def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[IndexEntries, None]:
        where = None if user is None else filter_of(Filter(user))
        after: Any = None  # in the client's types, the end of a page is not a valid beginning of one
        while True:
            async with self._call(self._patience):
                records, after = await self._client.scroll(
                    self._name,
                    scroll_filter=where,
                    limit=page,
                    offset=after,
                    with_payload=list(RECONCILED),
                    with_vectors=False,
                )
                entries = [
                    entry_of(it.id if isinstance(it.id, int) else UUID(str(it.id)), it.payload)
                    for it in records
                    if it.id not in RESERVED
                ]
            if entries:
                yield IndexEntries(b"".join(entries))
            if after is None:
                return

    async def count(self, user: UUID | None = None) -> int:
        async with self._call(self._timeout):
            where = _POINTS if user is None else filter_of(Filter(user))
            return (await self._client.count(self._name, count_filter=where, exact=True)).count

    async def watermark(self) -> Watermark | None:
        async with self._call(self._timeout):
            return (await self._read_state()).watermark

    async def set_watermark(self, watermark: Watermark) -> None:
        async with self._write():
            await self._write_reserved(WATERMARK, watermark_payload(watermark))

    async def renew(self) -> None:
        async with self._call(self._patience):
            await self._take(created=False)

    async def flush(self) -> None:
        """Does nothing: the server acknowledges a write after it is in its write-ahead log."""
        async with self._call(self._patience):
            pass

    async def status(self) -> IndexStatus:
        async with self._call(self._timeout):
            version = (await self._client.info()).version
        return IndexStatus(
            engine="qdrant",
            version=version,
            collection=self._name,
            dimension=self._dimension,
            points=await self.count(),
        )

    async def activate(self) -> None:
        """Makes the alias name this collection, in one step. Called when this collection is complete.

        The previously named collection stays: another replica may still use it.
        """
        async with self._write():
            await self._take_alias(replacing=True)

    async def drop(self) -> None:
        async with self._write():
            if await self._read_alias_target() == self._name:
                raise IndexUnavailable(f"{self._name} is the collection in use")
            await self._client.delete_collection(self._name)
        await self.close()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            # The client drops the connections of running calls without closing them.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._timeout if self._calls else 0):
                    await self._idle.wait()
            async with _unavailable(self._timeout):
                await self._client.close()

    @asynccontextmanager
    async def _call(self, deadline: float) -> AsyncIterator[None]:
        """Wraps one call of the client: ensures that the collection exists, limits the time, and converts the errors.

        Waiting for another caller's attempt to open counts too, so that a hung server costs no caller more than its own
        deadline.
        """
        if self._closed:
            raise IndexUnavailable("the index is closed")
        self._calls += 1
        try:
            async with _unavailable(deadline):
                if not self._ready:
                    await self.open()
                yield
        except IndexUnavailable:
            # The collection may be gone, or the server replaced: the next call checks, and creates it again.
            self._ready = False
            raise
        finally:
            self._ended()

    @asynccontextmanager
    async def _write(self, *, adds: bool = False) -> AsyncIterator[None]:
        """Wraps a call that changes the collection. What only `adds` points reads the owner once in `OWNER_EVERY`;
        what takes something away, or makes the collection ours, reads it each time."""
        async with self._call(self._patience):
            recently = time.monotonic() - self._owner_read_at < OWNER_EVERY
            if self._accept is not None and not (adds and recently):
                await self._check_owner()
            yield

    async def _check_owner(self) -> None:
        """Raises `IndexUnavailable` if the collection names another owner than before. The next call asks whose it
        is."""
        owner = (await self._read_state()).owner
        if owner is None or self._owner is None or owner.installation != self._owner.installation:
            raise IndexUnavailable(f"{self._name} has another owner than before")
        self._owner_read_at = time.monotonic()

    def _ended(self) -> None:
        self._calls -= 1
        if self._closed and not self._calls:
            self._idle.set()

    async def _ensure(self) -> None:
        async with _unavailable(self._timeout):
            exists = await self._client.collection_exists(self._name)
        created = False
        if not exists:
            async with _unavailable(self._patience):
                created = await self._create()
        async with _unavailable(self._timeout):
            info = await self._client.get_collection(self._name)
        check_collection(self._name, info, self._dimension)
        async with _unavailable(self._patience):
            await self._take(created=created)
        for key, schema in _SCHEMAS.items():
            if key not in info.payload_schema:
                async with _unavailable(self._patience):
                    await self._client.create_payload_index(self._name, key, schema, wait=True)
        await self._introduce()
        if self._on_connected is not None:
            async with _unavailable(self._timeout):
                watermark = (await self._read_state()).watermark
            if (beginning := await self._on_connected(watermark)) is not None:
                async with _unavailable(self._patience):
                    await self._write_reserved(WATERMARK, watermark_payload(beginning))

    async def _read_state(self, name: str | None = None) -> CollectionState:
        """The owner and the watermark of this collection, or of another one."""
        records = await self._client.retrieve(name or self._name, [*RESERVED], with_payload=True)
        payloads = {record.id: record.payload for record in records}
        return CollectionState(owner_of(payloads.get(OWNER)), watermark_of(payloads.get(WATERMARK)))

    async def _take(self, *, created: bool) -> None:
        """Has the owner of the collection decided, before anything else is written there, and writes it."""
        if self._accept is None:
            return
        state = (await self._read_state())._replace(created=created)
        if state.owner is None and state.watermark is None and not created:
            some, _ = await self._client.scroll(self._name, limit=_SAMPLE, with_payload=False, with_vectors=False)
            ids = (UUID(int=it.id) if isinstance(it.id, int) else UUID(str(it.id)) for it in some)
            # Read again: another process may have taken the collection and begun to fill it before the sample.
            state = (await self._read_state())._replace(ids=tuple(ids))
        owner = await self._accept(state)
        if owner != state.owner:
            try:
                async with _unavailable(self._patience):
                    await self._write_reserved(OWNER, owner_payload(owner))
            except IndexUnavailable as error:
                if state.owner is None:
                    raise
                # A server that cannot write now, such as one with a full disk, can still be searched.
                log.debug("%s: its owner could not be renewed: %s", self._name, error)
                owner = state.owner
        self._owner, self._owner_read_at = owner, time.monotonic()

    async def _write_reserved(self, id_: int, payload: dict[str, Any]) -> None:
        vector = reserved_vector(self._dimension).tolist()
        point = models.PointStruct(id=id_, vector=vector, payload=payload)
        await self._client.upsert(self._name, [point], wait=True)

    async def _create(self) -> bool:
        """Creates the collection. Returns False if another process was faster."""
        try:
            await self._client.create_collection(
                self._name,
                vectors_config=configuration(self._dimension),
                sparse_vectors_config={WORDS: models.SparseVectorParams()},
                # One graph per tenant and no global one: every search has a tenant.
                hnsw_config=models.HnswConfigDiff(m=0, payload_m=16),
            )
        except Exception:
            if not await self._client.collection_exists(self._name):
                raise
            return False
        return True

    async def _introduce(self) -> None:
        """Makes the alias name this collection if it names none. It only helps other readers, so a failure is not an
        error."""
        try:
            async with _unavailable(self._patience):
                await self._take_alias(replacing=False)
        except IndexUnavailable as error:
            log.warning("the alias %s could not be set: %s", self._alias, error)

    async def _read_alias_target(self) -> str | None:
        aliases = (await self._client.get_aliases()).aliases
        return next((it.collection_name for it in aliases if it.alias_name == self._alias), None)

    async def _alias_is_used(self) -> bool:
        """Returns True if a collection has the alias's name, like that of the old OpenMemory. It is not ours, and
        stays.

        Only to be called if there is no such alias.
        """
        exists = await self._client.collection_exists(self._alias)
        if exists and not self._warned:
            self._warned = True
            log.info("a collection that is not ours has the name %s: it is left alone, without an alias", self._alias)
        return exists

    async def _is_ours(self, name: str) -> bool:
        owner = (await self._read_state(name)).owner
        return self._accept is None or (
            owner is not None and self._owner is not None and owner.installation == self._owner.installation
        )

    async def _take_alias(self, *, replacing: bool) -> None:
        """Makes the alias name this collection. With `replacing`, also if it names another one of this installation."""
        current = await self._read_alias_target()
        if current == self._name or (not replacing if current else await self._alias_is_used()):
            return
        if current is not None and not await self._is_ours(current):
            log.info("the alias %s names %s, which is not ours: it is left alone", self._alias, current)
            return
        target = models.CreateAlias(collection_name=self._name, alias_name=self._alias)
        steps: list[models.AliasOperations] = [models.CreateAliasOperation(create_alias=target)]
        if current is not None:
            steps.insert(0, models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self._alias)))
        await self._client.update_collection_aliases(steps)
        if replacing:
            log.info("the alias %s moved from %s to %s", self._alias, current, self._name)


@asynccontextmanager
async def _unavailable(deadline: float) -> AsyncIterator[None]:
    """Converts any error of the client, and a timeout after `deadline` seconds, to `IndexUnavailable`.

    The client has no common base for refusals, timeouts, unreadable answers and failed assertions about answers.
    """
    try:
        async with asyncio.timeout(deadline):
            yield
    except IndexUnavailable:
        raise
    except TimeoutError as error:
        raise IndexUnavailable(f"qdrant did not answer within {deadline:g} s") from error
    except Exception as error:
        raise IndexUnavailable(f"qdrant: {type(error).__name__}: {error}".rstrip(": ")) from error
