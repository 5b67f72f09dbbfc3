"""BM25 as the product of two sparse vectors: that of a text, which the index stores, and that of a query.

The score of a text is the sum over the lexemes that it shares with the query (Robertson and Zaragoza 2009, "The
Probabilistic Relevance Framework: BM25 and Beyond", with the non-negative idf of Lucene):

    idf · tf · (K1 + 1) / (tf + K1 · (1 - B + B · length / MEAN_LENGTH))
    idf = ln(1 + (documents - holding + 0.5) / (holding + 0.5))

The vector of the text has everything but the idf, and that of the query has the idf. So the figures of a scope, which
change with every memory, are not stored. K1 = 0.9 and B = 0.4 (Trotman, Puurula and Burgess 2014, the defaults of
Anserini) beat 1.2 and 0.75 on short texts. The mean length is fixed: a long text among short ones would otherwise lose
most of its score.

The index of a lexeme is its hash. Two lexemes of one text with the same hash would count as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from openmemory.index.port import SparseVector

K1 = 0.9
B = 0.4
MEAN_LENGTH = 20
"""The number of lexemes of a text of usual length."""

HASH = "hashtext({lexeme})"
"""SQL: the index of a lexeme, as a signed number of 32 bits."""

_PACKED = np.dtype([("index", ">u4"), ("frequency", ">u2")])


def packed_lexemes(words: str) -> str:
    """SQL: the lexemes of a text search vector, each as its index and how often the text contains it."""
    index = HASH.format(lexeme="w.lexeme")
    return f"""coalesce((
        SELECT string_agg(int4send({index}) || int2send(greatest(cardinality(w.positions), 1)::int2), '')
        FROM unnest({words}) AS w), '')"""  # noqa: S608 - only names are put in


def text_vectors(packed: Sequence[bytes], lengths: Sequence[int]) -> list[SparseVector]:
    """The vectors of texts with these `packed_lexemes` and these lengths."""
    counts = np.fromiter((len(one) // _PACKED.itemsize for one in packed), dtype=np.intp, count=len(packed))
    lexemes = np.frombuffer(b"".join(packed), dtype=_PACKED)
    frequency = lexemes["frequency"].astype(np.float32)
    norm = (K1 * (1 - B + B * np.asarray(lengths, dtype=np.float32) / MEAN_LENGTH)).astype(np.float32)
    weights = frequency * np.float32(K1 + 1) / (frequency + np.repeat(norm, counts))
    indices, ends = lexemes["index"].astype(np.uint32), np.cumsum(counts)
    parts = [
        SparseVector(indices[end - many : end], weights[end - many : end])
        for many, end in zip(counts, ends, strict=True)
    ]
    owners = np.repeat(np.arange(len(packed), dtype=np.uint64), counts) << np.uint64(32) | indices
    if len(np.unique(owners)) < len(owners):
        parts = [_distinct(*part) for part in parts]
    return parts


def _distinct(indices: npt.NDArray[np.uint32], values: npt.NDArray[np.float32]) -> SparseVector:
    """The vector with each index once: of lexemes with the same hash, the one that counts most."""
    order = np.argsort(-values, kind="stable")
    distinct, first = np.unique(indices[order], return_index=True)
    return SparseVector(distinct, values[order][first])


def idf(documents: float, holding: float) -> float:
    """The weight of a lexeme that so many of the documents hold."""
    return math.log(1 + (max(documents - holding, 0.0) + 0.5) / (holding + 0.5))


def query_vector(hashes: Sequence[int], weights: Sequence[float]) -> SparseVector:
    """The vector of a query. The hashes are signed."""
    indices = np.asarray(hashes, dtype=np.int64).astype(np.uint32)
    return _distinct(indices, np.asarray(weights, dtype=np.float32))
