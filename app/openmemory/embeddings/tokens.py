"""Token vectors, small enough to be stored: selects which tokens count and encodes them. Has no side effects.

A network computes a vector for each token and pools them into one for the text. Pooling loses what a single word of a
question is near to. Late interaction compares exactly that (`search.late_interaction`). Of a stored token, only the
signs of its numbers are kept, after a rotation that makes them alike and independent. The question's tokens keep their
magnitudes, so that the comparison still approximates the cosine (as in asymmetric hashing; Gao and Long 2024,
"RaBitQ", bound the error). In measurements, 384 signs carry more information than 64 numbers of a byte each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import Codes, Tokens

MAX_TOKENS = 512
"""The maximum number of tokens of one text. Longer texts are sampled evenly: the vectors of neighbouring tokens know of
each other, and the end of a text is found as well as its beginning."""

_SEED = 20_251_122
_MAX_CODE = 127

_SAY_NOTHING = frozenset(
    """
    a am an and are as at be been being but by can could did do does doing for from had has have having he her hers him
    his i if in into is it its itself just me my no nor not of on or our ours she should so than that the their theirs
    them then there these they this those to too up us very was we were what when where which who whom why will with
    would you your yours d ll m re s t ve
    """.split()  # noqa: SIM905 - a column of a hundred would be no easier to read
)
"""English function words. They are nearly half of the tokens, and are near to each other in any two texts. The rest of
a text carries as much information in half the space."""

Floats = npt.NDArray[np.float32]

Flags = npt.NDArray[np.bool_]


def rotation(dimension: int) -> Floats:
    """A fixed orthogonal matrix, shape (dimension, dimension).

    The Q of a Gaussian matrix, uniformly distributed (Stewart 1980). It is the same on every machine and in every
    version: codes are stored, and compared with questions years later.
    """
    # `default_rng` may draw other numbers in another version of NumPy; `RandomState` never does.
    gaussian = np.random.RandomState(_SEED).standard_normal((dimension, dimension))
    q, r = np.linalg.qr(gaussian)
    # LAPACK chooses the signs of the columns.
    matrix: Floats = (q * np.sign(np.diag(r))).astype(np.float32)
    return matrix


def mostly_unknown(text: str, pieces: Iterable[tuple[int | None, str, tuple[int, int]]], unknown: str) -> bool:
    """Returns True if most letters of a text belong to words outside the model's vocabulary.

    `pieces`: of each token, the number of its word, the token, and its place in the text. `unknown`: the token for what
    is not in the vocabulary. A word that is spelled letter by letter is not known either, nor is a single letter of
    another script than the Latin one.
    """
    words: dict[int, list[tuple[str, tuple[int, int]]]] = {}
    for word, token, place in pieces:
        if word is not None:
            words.setdefault(word, []).append((token, place))
    all_letters, strange = 0, 0
    for parts in words.values():
        letters = sum(sum(map(str.isalpha, text[start:end])) for _, (start, end) in parts)
        spelled = all(len(token.removeprefix("##")) == 1 for token, _ in parts)
        in_vocabulary = not spelled or (len(parts) == 1 and parts[0][0].isascii())
        all_letters += letters
        strange += letters if not in_vocabulary or any(token == unknown for token, _ in parts) else 0
    return strange * 2 > all_letters


class TokenKinds(NamedTuple):
    """Flags for the token ids that are parts of `words` and of `numbers`; the others are signs. Shape (vocabulary,)
    each."""

    words: Flags
    numbers: Flags


def counting(vocabulary: Mapping[str, int], special: Iterable[int]) -> TokenKinds:
    """Selects the tokens of a vocabulary that count: no `special` ids and no function words. Tokens with a digit are
    numbers.

    Numbers are left to lexical search: pieces such as `32` and `00` are near to any other number. So the codes of texts
    leave them out, and in a question they are zero: near to nothing, they leave their part of the question undecided.
    """
    size = max(vocabulary.values(), default=-1) + 1
    words, numbers = np.zeros(size, dtype=np.bool_), np.zeros(size, dtype=np.bool_)
    for token, id_ in vocabulary.items():
        numbers[id_] = any(map(str.isdigit, token))
        words[id_] = any(map(str.isalpha, token)) and not numbers[id_] and token not in _SAY_NOTHING
    words[list(special)] = numbers[list(special)] = False
    return TokenKinds(words, numbers)


def rounded(rotated: Floats) -> Tokens:
    """The unit vectors of tokens times 127, rounded. A vector without a direction stays zero."""
    norms = np.linalg.norm(rotated, axis=1, keepdims=True)
    unit = np.divide(rotated, norms, out=np.zeros_like(rotated), where=norms > 0)
    codes: Tokens = np.rint(unit * _MAX_CODE).astype(np.int8)
    return codes


def coded(rotated: Floats) -> Codes:
    """One bit for each number of the tokens, set if it is above zero, shape (tokens, dimension / 8)."""
    return np.packbits(rotated > 0, axis=1)


_BLOCK = 128
"""The number of tokens in a block. Its bits take 200 kB as floats, which stay in a core's cache."""


def cosines(question: Tokens, codes: Codes) -> Floats:
    """The approximate cosines of a text's tokens and a question's, shape (text's, question's), negative ones as 0.

        cosine = q · sign(d) / √dimension / √(2/π)

    The unit vector of the signs has a cosine of √(2/π) with the vector itself, on average (Charikar 2002 has the
    symmetric case).
    """
    count, dimension = question.shape
    # In blocks, and with a multiple of eight columns, the product takes half the time.
    turned = np.zeros((dimension, -(-count // 8) * 8), dtype=np.float32)
    turned[:, :count] = question.T
    turned /= np.float32(_MAX_CODE * np.sqrt(dimension * 2 / np.pi))
    # Twice the sum over the positive numbers, less the sum over all, is the sum over the signs.
    near = np.empty((len(codes), turned.shape[1]), dtype=np.float32)
    for start in range(0, len(codes), _BLOCK):
        block = slice(start, start + _BLOCK)
        bits = np.unpackbits(codes[block], axis=1, count=dimension).astype(np.float32)
        np.matmul(bits, turned, out=near[block])
    similarities: Floats = 2 * near[:, :count] - turned.sum(axis=0)[:count]
    np.maximum(similarities, 0.0, out=similarities)
    np.minimum(similarities, 1.0, out=similarities)
    return similarities


def thinned(tokens: Codes) -> Codes:
    """At most `MAX_TOKENS` of the tokens, evenly spread, with the first and the last."""
    if len(tokens) <= MAX_TOKENS:
        return tokens
    return tokens[np.linspace(0, len(tokens) - 1, MAX_TOKENS).round().astype(np.intp)]


def owned(cut: Sequence[slice]) -> list[slice]:
    """The tokens of each chunk that it represents: each token of the text once, although chunks overlap.

    The middle of an overlap divides it between its two chunks, so that each token belongs to the chunk with more
    context around it.
    """
    inner = [(one.stop + next_.start) // 2 for one, next_ in pairwise(cut)]
    edges = [cut[0].start, *inner, cut[-1].stop]
    return [slice(start, stop) for start, stop in pairwise(edges)]
