"""The collections below one folder, one shard each, and the aliases that name them."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import qdrant_edge as edge

from openmemory.index.engine.rest_format import RequestRefused, wrong
from openmemory.index.engine.shards import Shard, VectorLayout, shape_of
from openmemory.index.port import IndexUnavailable
from openmemory.resilience.atomic_files import replacing

log = logging.getLogger(__name__)

FLUSH_AFTER = 5.0
"""The seconds after which acknowledged points are flushed to disk, as a server does by itself."""

_ALIASES = "aliases.json"
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_ASIDE = re.compile(r".*\.broken-\d+")
_RESERVED = frozenset({"aliases", _ALIASES, "current"})


class OpenCollections:
    """Opens collections on first use.

    One process owns the folder. Every collection has vectors without a name, compared by their cosine, and may have
    `more`. It has an index of the payload keys that the product filters by, no matter who created it.
    """

    def __init__(self, folder: Path) -> None:
        self.operations = 0
        """The number of writes so far."""
        self.closed = False
        self._folder = folder
        self._shards: dict[str, Shard] = {}
        self._unflushed: set[Shard] = set()
        self._flusher: asyncio.Task[None] | None = None
        self.aliases = self._read_aliases()
        """A mapping of alias to collection."""

    def names(self) -> list[str]:
        """The collections, by name."""
        if not self._folder.exists():
            return []
        return sorted(home.name for home in self._folder.iterdir() if self._shape(home.name))

    def exists(self, name: str) -> bool:
        """Returns True if a collection has this name or alias."""
        return self._shape(self.aliases.get(name, name)) is not None

    def shard(self, name: str) -> Shard:
        """The collection of a name or an alias.

        Raises:
            RequestRefused: it does not exist (404).
            IndexUnavailable: it exists and cannot be opened.
        """
        name = self.aliases.get(name, name)
        if name not in self._shards:
            if (shape := self._shape(name)) is None:
                raise _missing(name)
            self._shards[name] = Shard(self._folder / name, shape, shared=True)
        return self._shards[name]

    def create(self, name: str, shape: Callable[[], VectorLayout]) -> None:
        """Creates an empty collection. Like a server, checks the name before it reads the `shape`.

        Raises:
            RequestRefused: the name cannot be used or is an alias (400), or is that of a collection (409).
        """
        if not _is_name(name):
            raise wrong(f"collection name {name!r} cannot be used here")
        if self._shape(name):
            raise RequestRefused(409, f"Wrong input: Collection `{name}` already exists!")
        if name in self.aliases:
            raise wrong(f"Can't create collection with name {name}. Alias with the same name already exists")
        self._shards[name] = Shard(self._folder / name, shape(), shared=True)

    def drop(self, name: str) -> bool:
        """Removes a collection with its aliases. Returns False if it did not exist."""
        if self._shape(name) is None:
            return False
        if (shard := self._shards.pop(name, None)) is not None:
            self._unflushed.discard(shard)
            shard.close()
        shutil.rmtree(self._folder / name)
        self._write_aliases({alias: target for alias, target in self.aliases.items() if target != name})
        return True

    def realias(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Changes aliases, all or none: `create_alias` (which also moves one) and `delete_alias`."""
        aliases = dict(self.aliases)
        for action in actions:
            match dict(action):
                case {"delete_alias": {"alias_name": str(alias)}}:
                    if aliases.pop(alias, None) is None:
                        raise RequestRefused(404, f"Not found: Alias {alias} does not exists!")
                case {"create_alias": {"alias_name": str(alias), "collection_name": str(target)}}:
                    if self._shape(target) is None:
                        raise _missing(target)
                    if not _is_name(alias):
                        raise wrong(f"alias name {alias!r} cannot be used here")
                    if self._shape(alias):
                        raise RequestRefused(409, f"Wrong input: Collection with the same name as alias {alias} exists")
                    aliases[alias] = target
                case _:
                    raise wrong("actions: only create_alias and delete_alias are supported here")
        self._write_aliases(aliases)

    def write(self, shard: Shard, operation: edge.UpdateOperation, *, size: int = 0) -> int:
        """Changes a collection by about `size` bytes; returns the number of the operation."""
        if self._shards.get(shard.home.name) is not shard:  # closed or dropped since the request began
            raise IndexUnavailable("the service is stopping") if self.closed else _missing(shard.home.name)
        self._unflushed.add(shard)
        shard.write(operation, size=size)
        self.operations += 1
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_later(), name="front-flush")
        return self.operations

    async def close(self) -> None:
        """Flushes everything possible and releases all resources. May be called twice."""
        self.closed = True
        if self._flusher is not None:
            self._flusher.cancel()
            await asyncio.wait([self._flusher])
        while self._shards:
            self._shards.popitem()[1].close()

    async def _flush_later(self) -> None:
        await asyncio.sleep(FLUSH_AFTER)
        failed = set[Shard]()
        while self._unflushed:
            shard = self._unflushed.pop()
            try:
                shard.flush()
            except IndexUnavailable as error:
                failed.add(shard)
                log.warning("the index could not be flushed: %s", error)
        self._unflushed = failed

    def _shape(self, name: str) -> VectorLayout | None:
        """The format of a collection's vectors, without opening it. None: there is no such collection."""
        return shape_of(self._folder / name) if _is_name(name) else None

    def _read_aliases(self) -> dict[str, str]:
        file = self._folder / _ALIASES
        try:
            aliases = orjson.loads(file.read_bytes()) if file.exists() else {}
            return {str(alias): str(target) for alias, target in dict(aliases).items()}
        except (OSError, ValueError) as error:
            # Aliases are only a convenience for other readers, and their writers set them again.
            log.error("the aliases in %s cannot be read and are forgotten: %s", file, error)
            return {}

    def _write_aliases(self, aliases: dict[str, str]) -> None:
        if aliases != self.aliases:
            with replacing(self._folder / _ALIASES) as file:
                file.write(orjson.dumps(aliases, option=orjson.OPT_SORT_KEYS))
            self.aliases = aliases


def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not _ASIDE.fullmatch(name) and name not in _RESERVED


def _missing(name: str) -> RequestRefused:
    return RequestRefused(404, f"Not found: Collection `{name}` doesn't exist!")
