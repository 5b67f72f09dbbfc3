"""One embedded shard in a folder: creates it, loads it, detects damage, moves it aside; writes and flushes it."""

from __future__ import annotations

import errno
import logging
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import orjson
import qdrant_edge as edge

from openmemory.index.conditions import HAS_CHUNKS, LABELS, TENANT
from openmemory.index.engine.calls import guarded, is_panic
from openmemory.index.engine.disk_space import check_room
from openmemory.index.engine.mapped_memory import release_mapped
from openmemory.index.multi_vector import MORE, WORDS
from openmemory.index.port import IndexUnavailable

log = logging.getLogger(__name__)

MAX_BROKEN = 2
"""The number of damaged folders that are kept for inspection. Older ones are removed."""

MAX_LONG_SHARE = 0.01
"""The share of long texts up to which starting with them is faster than a scan that skips the others."""

_MACHINE = {
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM,
    errno.EAGAIN, errno.EINTR,
}  # fmt: skip
"""Failures of the machine, not of the data: the folder is left unchanged."""


class VectorLayout(NamedTuple):
    """The format of a shard's vectors: how many numbers each has, and whether a point has only one of them, and none of
    words."""

    dimension: int
    plain: bool


class Shard:
    """An open shard. Call its `engine` within `guarded`."""

    def __init__(self, home: Path, shape: VectorLayout, *, shared: bool = False) -> None:
        """Loads the shard, or creates it. A shard that cannot be loaded is moved aside, and an empty one replaces it.

        `shared`: other programs write to it too, so points without our payload are not a sign of damage.

        Raises:
            IndexUnavailable: the folder is intact but cannot be used; see `_load`. Or the disk is full.
        """
        self.home = home
        self.shape = shape
        self._long: list[edge.ConditionType] | None = None
        self._long_is_current = False
        with guarded():
            home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            check_room(home.parent)
            self.engine = _load(home, shape, shared) or _create(home, shape)
            release_mapped(home)

    def write(self, operation: edge.UpdateOperation, *, size: int = 0, long: bool = True) -> None:
        """Applies an operation of about `size` bytes. `long`: it may concern points with several vectors."""
        with guarded():
            check_room(self.home.parent, size)
            self.engine.update(operation)
        self._long_is_current = self._long_is_current and not long

    def flush(self) -> None:
        """Writes everything to disk."""
        with guarded():
            self.engine.flush()
            release_mapped(self.home)

    def close(self) -> None:
        """Flushes if that is possible, and releases the files."""
        try:
            with guarded():
                try:
                    self.engine.flush()
                finally:
                    self.engine.close()
        except IndexUnavailable as error:
            # Not a reason to fail a shutdown: the next sync finds and repairs what is not on disk.
            log.warning("%s could not be flushed: %s", self.home.name, error)

    def long_texts(self) -> list[edge.ConditionType] | None:
        """The conditions for a search of `more`: only the points with the label of several vectors, if they are few.

        None: there are none. The result is kept until the next write.
        """
        if not self._long_is_current:
            self._long, self._long_is_current = self._long_texts(), True
        return self._long

    def _long_texts(self) -> list[edge.ConditionType] | None:
        label = edge.FieldCondition(key=LABELS, match=edge.MatchValue(HAS_CHUNKS))
        count = self.engine.count(edge.CountRequest(exact=False, filter=edge.Filter(must=[label])))
        # This is an estimate: only an exact count proves that there are none.
        if not count and not _count(self.engine, label):
            return None
        return [label] if count <= MAX_LONG_SHARE * self.engine.info().points_count else []


def shape_of(home: Path) -> VectorLayout | None:
    """The format of a shard's vectors. None if there is no shard of ours with a valid configuration."""
    try:
        config = orjson.loads((home / "edge_config.json").read_bytes())
        vectors, sparse = dict(config["vectors"]), set(config.get("sparse_vectors") or ())
        first, more = vectors.pop(""), vectors.pop(MORE, None)
        size = first["size"]
        if vectors or sparse != (set() if more is None else {WORDS}):
            return None
        if any(each["distance"] != "Cosine" or each["size"] != size for each in (first, more or first)):
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(size, int) or first.get("multivector_config"):
        return None
    return VectorLayout(size, more is None)


def _configuration(shape: VectorLayout) -> edge.EdgeConfig:
    first = edge.EdgeVectorParams(size=shape.dimension, distance=edge.Distance.Cosine)
    more = edge.EdgeVectorParams(
        size=shape.dimension,
        distance=edge.Distance.Cosine,
        multivector_config=edge.MultiVectorConfig(comparator=edge.MultiVectorComparator.MaxSim),
    )
    return edge.EdgeConfig(
        vectors=first if shape.plain else {"": first, MORE: more},
        sparse_vectors=None if shape.plain else {WORDS: edge.EdgeSparseVectorParams()},
        quantization_config=edge.TurboQuantQuantizationConfig(bits=edge.TurboQuantBitSize.Bits4),
    )


def _create(home: Path, shape: VectorLayout) -> edge.EdgeShard:
    if home.exists():
        _move_aside(home)
    home.mkdir(mode=0o700)
    shard = edge.EdgeShard.create(str(home), _configuration(shape))
    _index_payload(shard)
    return shard


def _load(home: Path, shape: VectorLayout, shared: bool) -> edge.EdgeShard | None:
    """Loads the shard of a folder. Returns None if there is none, or it is damaged.

    Raises:
        IndexUnavailable: it is intact but cannot be used: another process has it, it contains vectors of another
            dimension, or the machine has no room, rights or file handles.
    """
    if not (home / "edge_config.json").exists() and not (home / "segments").exists():
        return None
    shard = None
    try:
        shard = edge.EdgeShard.load(str(home), _configuration(shape))
        _index_payload(shard)
        _probe(shard, shape, shared)
        return shard
    except BaseException as error:
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        if shard is not None:
            with suppress(Exception):  # Closing flushes, which damage may prevent; the files are released in any case.
                shard.close()
        words = str(error)
        system = re.search(r"(?:os error|code:) (\d+)", words)
        if "WouldBlock" in words:
            raise IndexUnavailable(f"{home} is in use by another process") from error
        if "incompatible with existing segments" in words:
            raise IndexUnavailable(f"{home} does not hold vectors of {shape.dimension} dimensions: {words}") from error
        if system and int(system[1]) in _MACHINE:
            raise IndexUnavailable(f"{home} cannot be opened: {words}") from error
        log.error("the vector index in %s is damaged and will be rebuilt: %s", home, words)
        return None


def _probe(shard: edge.EdgeShard, shape: VectorLayout, shared: bool) -> None:
    """Reads everything once: a shard may load with parts missing, and then answer with errors, or with nothing.

    A condition on a key without an index reads the payload. A search over all points reads the codes and the vectors.
    """
    points = _count(shard)
    has_vector, has_words = edge.HasVectorCondition(""), edge.HasVectorCondition(WORDS)
    has_payload = edge.FieldCondition(key="revision", match=edge.MatchExcept([-1]))
    parts: list[edge.ConditionType] = [has_vector] if shared else [has_vector, has_payload]
    for part in parts if shape.plain or shared else [*parts, has_words]:
        count = _count(shard, part)
        if count != points:
            raise ValueError(f"only {count} of its {points} points are whole")
    _probe_vectors(shard, shape, "", points)
    if not shape.plain:
        chunked = _count(shard, edge.HasVectorCondition(MORE))
        with_label = _count(shard, edge.FieldCondition(key=LABELS, match=edge.MatchValue(HAS_CHUNKS)))
        if chunked != with_label and not shared:
            raise ValueError(f"{chunked} of its points have more than one vector, and {with_label} should")
        _probe_vectors(shard, shape, MORE, chunked)


def _count(shard: edge.EdgeShard, *conditions: edge.ConditionType) -> int:
    return shard.count(edge.CountRequest(exact=True, filter=edge.Filter(must=list(conditions)) if conditions else None))


def _probe_vectors(shard: edge.EdgeShard, shape: VectorLayout, name: str, points: int) -> None:
    for ignore_codes in (False, True):
        codes = edge.QuantizationSearchParams(ignore=ignore_codes, rescore=True)
        request = edge.SearchRequest(
            query=edge.Query.Nearest([1.0] * shape.dimension, using=name),
            limit=1,
            offset=0,
            params=edge.SearchParams(exact=ignore_codes, quantization=codes),
        )
        if len(shard.search(request)) != min(points, 1):
            raise ValueError(f"none of its {points} points is found")


def _move_aside(home: Path) -> None:
    pattern = re.compile(re.escape(home.name) + r"\.broken-(\d+)")
    numbers = sorted(int(match[1]) for path in home.parent.iterdir() if (match := pattern.fullmatch(path.name)))
    aside = home.with_name(f"{home.name}.broken-{numbers[-1] + 1 if numbers else 1}")
    home.rename(aside)
    log.warning("the damaged folder was kept as %s", aside)
    for number in numbers[: max(0, len(numbers) + 1 - MAX_BROKEN)]:
        shutil.rmtree(home.with_name(f"{home.name}.broken-{number}"), ignore_errors=True)


def _index_payload(shard: edge.EdgeShard) -> None:
    present = shard.info().payload_schema
    if TENANT not in present:
        tenant = edge.KeywordIndexParams(is_tenant=True)
        shard.update(edge.UpdateOperation.create_field_index(TENANT, tenant))
    if LABELS not in present:
        compared = edge.IntegerIndexParams(lookup=True, range=False)
        shard.update(edge.UpdateOperation.create_field_index(LABELS, compared))
