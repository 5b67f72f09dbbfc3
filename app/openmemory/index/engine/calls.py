"""Calls Qdrant's own engine in this process, with limits from measurements.

The engine holds the GIL in every call, so no other Python code runs meanwhile, in any thread, and a thread for the call
gains nothing. Calls are therefore kept short: writes are split, flushes are frequent, and `optimize()`, which takes
seconds, is never called. Instead, a shard keeps 4-bit codes of its vectors. A search scans the codes and scores the
best of them again with the vectors: exact scores for a third of the cost of a full scan.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
import qdrant_edge as edge

from openmemory.index.port import IndexUnavailable, SparseVector, Vector

CHUNK = 250
"""The number of vectors in one engine write, which takes about 6 ms."""

_CANDIDATES = 100
_OVERSAMPLING = 4.0
"""A search scores `max(4 x limit, 100)` candidates again: recall@10 and @50 of 1.0 against an exact scan of 50,000."""


@contextmanager
def guarded() -> Iterator[None]:
    """Wraps calls of the engine, which raises plain exceptions, and panics that are not even `Exception`s.

    Raises:
        IndexUnavailable: the engine raised any error.
    """
    try:
        yield
    except IndexUnavailable:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            raise IndexUnavailable(f"qdrant-edge: {error}") from error
        raise


def is_panic(error: BaseException) -> bool:
    """Returns True if an engine call panicked."""
    # The engine's own panics derive from BaseException, in a module that cannot be imported.
    return type(error).__name__ == "PanicException"


def buffer(vector: Vector) -> list[float]:
    """The fastest form for the engine: a buffer is read in two thirds of the time of a list or an array."""
    return cast(list[float], np.ascontiguousarray(vector, dtype=np.float32).data)


def sparse(words: SparseVector) -> edge.SparseVector:
    """A vector of words in the engine's form."""
    return edge.SparseVector(words.indices.tolist(), words.values.tolist())


def with_codes(limit: int) -> edge.SearchParams:
    """The parameters to search for `limit` points by their codes."""
    codes = edge.QuantizationSearchParams(rescore=True, oversampling=max(_OVERSAMPLING, _CANDIDATES / limit))
    return edge.SearchParams(quantization=codes)
