"""The collections below one folder, one shard each, and the aliases that name them."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import orjson
import qdrant_edge as edge

from openmemory.index.engine.calls import READERS, in_thread, is_panic
from openmemory.index.engine.disk_space import check_room
from openmemory.index.engine.mapped_memory import release_mapped
from openmemory.index.engine.multi_vector import MultiVectorPoints
from openmemory.index.engine.rest_format import RequestRefused, wrong
from openmemory.index.engine.shards import VectorLayout, open_shard, shape_of
from openmemory.index.port import IndexUnavailable
from openmemory.resilience.atomic_files import replacing

log = logging.getLogger(__name__)

T = TypeVar("T")

FLUSH_AFTER = 5.0
"""The seconds after which acknowledged points are flushed to disk, as a server does by itself."""

_ALIASES = "aliases.json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_ASIDE = re.compile(r".*\.broken-\d+")
_RESERVED = frozenset({"aliases", _ALIASES, "current"})


class Shard:
    """One open collection. It is closed after the last reader is done; later calls fail because it no longer exists."""

    def __init__(self, name: str, engine: edge.EdgeShard, shape: VectorLayout) -> None:
        self.name = name
        self.shape = shape
        self.long = MultiVectorPoints(engine)
        """The points to search for multi-vectors. To be used within `read`."""
        self.dirty = False
        self.operations = 0
        self._engine = engine
        self._gone = False
        self._reading = 0
        self._turn = threading.Condition()

    def read(self, call: Callable[[edge.EdgeShard], T]) -> T:
        """Calls the engine. The shard cannot be closed meanwhile."""
        with self._turn:
            if self._gone:
                raise _missing(self.name)
            self._reading += 1
        try:
            return call(self._engine)
        finally:
            with self._turn:
                self._reading -= 1
                self._turn.notify_all()

    def write(self, operation: edge.UpdateOperation) -> int:
        """Applies an operation and returns its number."""
        self.dirty = True
        self.read(lambda engine: engine.update(operation))
        self.long.written()
        self.operations += 1
        return self.operations

    def close(self) -> None:
        """Waits for the readers, and releases the files."""
        with self._turn:
            self._gone = True
            self._turn.wait_for(lambda: self._reading == 0)
        self._engine.close()


class OpenCollections:
    """Opens collections on first use. One thread changes them, others search.

    One process owns the folder. Every collection has vectors without a name, compared by their cosine, and may have
    `more`. It has an index of the payload keys that the product filters by, no matter who created it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._shards: dict[str, Shard] = {}
        self._aliases: dict[str, str] | None = None
        self._readers = ThreadPoolExecutor(READERS, "front-read")
        self._writer = ThreadPoolExecutor(1, "front-write")
        self._flusher: asyncio.Task[None] | None = None
        self._closed = False

    async def names(self) -> list[str]:
        """The collections, by name."""
        return await self._change(self._names)

    async def aliases(self) -> dict[str, str]:
        """A mapping of alias to collection."""
        return dict(await self._change(self._read_aliases))

    async def shard(self, name: str) -> Shard:
        """The collection of a name or an alias.

        Raises:
            Refused: it does not exist (404).
            IndexUnavailable: it exists and cannot be opened.
        """
        known = self._shards.get((self._aliases or {}).get(name, name))
        return known if known is not None else await self._change(self._open, name)

    async def create(self, name: str, shape: Callable[[], VectorLayout]) -> None:
        """Creates an empty collection. Like a server, checks the name before it reads the `shape`.

        Raises:
            Refused: the name cannot be used or is an alias (400), or is that of a collection (409).
        """
        await self._change(self._create, name, shape)

    async def drop(self, name: str) -> bool:
        """Removes a collection with its aliases. Returns False if it did not exist."""
        return await self._change(self._drop, name)

    async def realias(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Changes aliases, all or none: `create_alias` (which also moves one) and `delete_alias`."""
        await self._change(self._realias, actions)

    async def read(self, shard: Shard, call: Callable[[edge.EdgeShard], T]) -> T:
        """Reads from a collection."""
        return await self._answer(self._readers, shard.read, call)

    async def write(self, shard: Shard, operation: edge.UpdateOperation, *, size: int = 0) -> int:
        """Changes a collection by about `size` bytes; returns the number of the operation."""
        done = await self._change(self._write, shard, operation, size)
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_later(), name="front-flush")
        return done

    async def close(self) -> None:
        """Flushes everything possible and releases all resources. May be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._flusher is not None:
            self._flusher.cancel()
            with suppress(asyncio.CancelledError):
                await self._flusher
        await asyncio.to_thread(self._readers.shutdown)
        try:
            await in_thread(self._writer, self._close)
        finally:
            await asyncio.to_thread(self._writer.shutdown)

    async def _change(self, call: Callable[..., T], *args: object) -> T:
        return await self._answer(self._writer, call, *args)

    async def _answer(self, pool: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
        if self._closed:
            raise IndexUnavailable("the service is stopping")
        outcome = await in_thread(pool, _outcome, call, *args)
        if isinstance(outcome, RequestRefused):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_AFTER)
        try:
            await self._change(self._flush)
        except IndexUnavailable as error:
            log.warning("the index could not be flushed: %s", error)

    def _write(self, shard: Shard, operation: edge.UpdateOperation, size: int) -> int:
        check_room(self._folder, size)
        return shard.write(operation)

    def _flush(self) -> None:
        for name, shard in self._shards.items():
            if shard.dirty:
                shard.dirty = False
                try:
                    shard.read(edge.EdgeShard.flush)
                except BaseException:
                    shard.dirty = True
                    raise
                release_mapped(self._folder / name)

    def _close(self) -> None:
        while self._shards:
            name, shard = self._shards.popitem()
            try:
                shard.read(edge.EdgeShard.flush)
            except BaseException as error:
                if not isinstance(error, Exception) and not is_panic(error):
                    raise
                log.warning("the collection %s could not be flushed: %s", name, error)
            finally:
                shard.close()

    def _names(self) -> list[str]:
        if not self._folder.exists():
            return []
        return sorted(home.name for home in self._folder.iterdir() if _is_name(home.name) and shape_of(home))

    def _open(self, name: str) -> Shard:
        name = self._read_aliases().get(name, name)
        if name in self._shards:
            return self._shards[name]
        home = self._folder / name
        shape = shape_of(home) if _is_name(name) else None
        if shape is None:
            raise _missing(name)
        return self._load(home, shape)

    def _load(self, home: Path, shape: VectorLayout) -> Shard:
        engine = open_shard(home, shape, shared=True)
        release_mapped(home)
        self._shards[home.name] = shard = Shard(home.name, engine, shape)
        return shard

    def _create(self, name: str, shape: Callable[[], VectorLayout]) -> None:
        if not _is_name(name):
            raise wrong(f"collection name {name!r} cannot be used here")
        home = self._folder / name
        if name in self._shards or shape_of(home) is not None:
            raise RequestRefused(409, f"Wrong input: Collection `{name}` already exists!")
        if name in self._read_aliases():
            raise wrong(f"Can't create collection with name {name}. Alias with the same name already exists")
        given = shape()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._load(home, given)

    def _drop(self, name: str) -> bool:
        home = self._folder / name
        if not _is_name(name) or (name not in self._shards and shape_of(home) is None):
            return False
        if name in self._shards:
            self._shards.pop(name).close()
        shutil.rmtree(home)
        kept = {alias: target for alias, target in self._read_aliases().items() if target != name}
        self._write_aliases(kept)
        return True

    def _realias(self, actions: Sequence[Mapping[str, Any]]) -> None:
        aliases = dict(self._read_aliases())
        for action in actions:
            match dict(action):
                case {"delete_alias": {"alias_name": str(alias)}}:
                    if aliases.pop(alias, None) is None:
                        raise RequestRefused(404, f"Not found: Alias {alias} does not exists!")
                case {"create_alias": {"alias_name": str(alias), "collection_name": str(target)}}:
                    if not _is_name(target) or shape_of(self._folder / target) is None:
                        raise _missing(target)
                    if not _is_name(alias):
                        raise wrong(f"alias name {alias!r} cannot be used here")
                    if shape_of(self._folder / alias) is not None:
                        raise RequestRefused(409, f"Wrong input: Collection with the same name as alias {alias} exists")
                    aliases[alias] = target
                case _:
                    raise wrong("actions: only create_alias and delete_alias are supported here")
        self._write_aliases(aliases)

    def _read_aliases(self) -> dict[str, str]:
        if self._aliases is None:
            file = self._folder / _ALIASES
            try:
                found = orjson.loads(file.read_bytes()) if file.exists() else {}
                self._aliases = {str(alias): str(target) for alias, target in dict(found).items()}
            except ValueError as error:
                # Aliases are only a convenience for other readers, and their writers set them again.
                log.error("the aliases in %s cannot be read and are forgotten: %s", file, error)
                self._aliases = {}
        return self._aliases

    def _write_aliases(self, aliases: dict[str, str]) -> None:
        if aliases != self._aliases:
            with replacing(self._folder / _ALIASES) as file:
                file.write(orjson.dumps(aliases, option=orjson.OPT_SORT_KEYS))
            self._aliases = aliases


def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not _ASIDE.fullmatch(name) and name not in _RESERVED


def _missing(name: str) -> RequestRefused:
    return RequestRefused(404, f"Not found: Collection `{name}` doesn't exist!")


def _outcome(call: Callable[..., T], *args: object) -> T | RequestRefused:
    """Returns the result of a call, or the `RequestRefused` that it raises: it is no failure of the engine."""
    try:
        return call(*args)
    except RequestRefused as refusal:
        return refusal
